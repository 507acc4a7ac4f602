"""After a restart with a backlog: a producer is told how long the ids still take to be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from frazil.bus import Delivery, Message
from frazil.bus.memory import MemoryBus, MemoryStream
from frazil.errors import Unavailable
from frazil.events import encode, first_position
from frazil.gateway import gateway as gateway_module
from frazil.gateway import health as health_module
from frazil.gateway.ingest import table_writers
from frazil.lake.catalog import Lake, LakeTable
from frazil.tables import LiveTail, StreamIds, TailMemory, WarmUpProgress
from tests.gateway.http.harness import event, running
from tests.gateway.http.test_status import health

BACKLOG = 400


async def test_retry_after_falls_with_what_was_read(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(memory_bus, lake, tmp_path) as gateway:
        await gateway.declare()
        for number in range(BACKLOG):
            await gateway.accept([event(str(number))])
    read = MemoryStream.read

    async def slowly(self: MemoryStream, first: int, **_: Any) -> list[Delivery]:
        await asyncio.sleep(0.02)
        return await read(self, first, max_messages=1)

    monkeypatch.setattr(MemoryStream, "read", slowly)
    monkeypatch.setattr(gateway_module, "WARM_UP_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(health_module, "_WARM_UP_SECONDS", 0.1)
    told: list[dict[str, Any]] = []
    async with running(memory_bus, lake, tmp_path) as gateway:
        async with asyncio.timeout(60):
            while True:
                part = (await health(gateway))["parts"]["gateway"]
                if (answer := await gateway.send([event("new")])).status_code == 202:
                    break
                if told:  # a request has waited for as long as producers do, and this one will too
                    assert part["status"] == "starting" and part["tables"] == ["main.orders"]
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (503, "warming")
                told.append({**error["details"], "retry_after": int(answer.headers["retry-after"])})
        assert (await health(gateway))["parts"]["gateway"] == {"status": "ok"}
    known = [entry for entry in told if entry["seconds_left"] is not None]
    assert len(known) >= 5
    done = [entry["done"] for entry in known]
    assert done == sorted(done) and done[-1] > 0.8
    # Each step takes the same time here, so that the first answers are as good as the last.
    assert known[-1]["seconds_left"] < known[0]["seconds_left"]
    for entry in known:
        assert entry["retry_after"] >= 1 and abs(entry["retry_after"] - max(1, entry["seconds_left"])) <= 1


async def test_a_table_whose_ids_cannot_be_read_is_named_until_they_can(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writers, "_WARM_UP_RETRY_SECONDS", 0.05)
    async with running(memory_bus, lake, tmp_path) as gateway:
        await gateway.declare()
        await gateway.accept([event("a")])

    async def refuse(self: MemoryStream, first: int, **_: Any) -> list[Delivery]:
        raise Unavailable("the bus does not answer", code="bus_unavailable")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryStream, "read", refuse)
        async with running(memory_bus, lake, tmp_path) as gateway:
            async with asyncio.timeout(30):
                while (part := (await health(gateway))["parts"]["gateway"])["status"] != "degraded":
                    await asyncio.sleep(0.02)
            assert part["tables"] == ["main.orders"] and "does not answer" in part["reason"]
            broken.undo()
            async with asyncio.timeout(30):
                while (await health(gateway))["parts"]["gateway"] != {"status": "ok"}:
                    await asyncio.sleep(0.02)


async def test_progress_counts_the_table_and_the_bus_together(memory_bus: MemoryBus) -> None:
    """Otherwise the time that is left is that of the table's ids alone, and grows when the bus is begun with."""
    stream = await memory_bus.create("main.t")
    for number in range(10):
        await stream.publish([Message(encode(_batch([f"b{number}"]).to_batches()), {})], message_id=str(number))
    seen: list[float] = []

    class Committed:
        name = "main.t"
        watermark = first_position(5)

        def rows_since(self, oldest: datetime) -> int:
            return 3_000

        def ids_since(self, oldest: datetime) -> Iterator[pa.RecordBatch]:
            for number in range(3):
                note()
                yield from _batch([f"{number}.{row}" for row in range(1_000)]).to_batches()

    def note() -> None:
        if (done := ids.progress.done) is not None:
            seen.append(done)

    tail = LiveTail(stream, TailMemory(1 << 20))
    load = cast(Callable[[], LakeTable], Committed)
    ids = StreamIds(stream, load, tail=tail, window_seconds=3600, spill_folder=None)
    await ids.refresh()
    note()
    assert seen == sorted(seen) and seen[0] < 0.5 and seen[-1] == 1.0, seen


def _batch(ids: list[str]) -> pa.Table:
    now = datetime.now(UTC)
    received = pa.array([now] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"_id": ids, "_seq": pa.array(range(len(ids)), pa.int64()), "_received_at": received})


def test_the_rest_takes_as_long_as_what_was_done() -> None:
    now = 0.0
    progress = WarmUpProgress(clock=lambda: now)

    def told() -> tuple[float | None, float | None]:
        return progress.done, progress.seconds_left

    assert told() == (None, None)
    progress.begin(100)
    now = 10.0
    assert told() == (None, None), "nothing is known of the pace yet"
    progress.advance(25)
    assert told() == (0.25, 30.0)
    progress.advance(175)
    assert told() == (1.0, 0.0), "there was more than it was told"
    progress.begin(0)
    progress.advance(3)
    assert told() == (None, None)
