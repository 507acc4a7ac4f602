"""After a restart with a backlog: a producer is told how long the ids still take to be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from frazil.bus import Delivery
from frazil.bus.memory import MemoryBus, MemoryStream
from frazil.gateway import gateway as gateway_module
from frazil.lake.catalog import Lake
from frazil.tables import WarmUpProgress
from tests.gateway.http.harness import event, running

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
    told: list[dict[str, Any]] = []
    async with running(memory_bus, lake, tmp_path) as gateway:
        async with asyncio.timeout(60):
            while (answer := await gateway.send([event("new")])).status_code != 202:
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (503, "warming")
                told.append({**error["details"], "retry_after": int(answer.headers["retry-after"])})
    known = [entry for entry in told if entry["seconds_left"] is not None]
    assert len(known) >= 5
    done = [entry["done"] for entry in known]
    assert done == sorted(done) and done[-1] > 0.8
    # Each step takes the same time here, so that the first answers are as good as the last.
    left = [entry["seconds_left"] for entry in known]
    assert left[0] > left[len(left) // 2] > left[-1]
    for entry in known:
        assert entry["retry_after"] >= 1 and abs(entry["retry_after"] - max(1, entry["seconds_left"])) <= 1


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
