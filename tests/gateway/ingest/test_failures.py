"""Lost replies, absent and full buses, replaced streams: never a receipt that is not true, never a row too many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frazil.bus import open_bus
from frazil.bus.memory import MemoryBus
from frazil.errors import Unavailable
from frazil.gateway import gateway as gateway_module
from frazil.lake.catalog import Lake
from frazil.tables import StreamIds
from tests.contract.servers import running_nats
from tests.gateway.http.conftest import STREAM_BYTES
from tests.gateway.http.harness import Running, commit, event, eventually, on_the_bus, running, stored_ids


async def test_a_lost_reply_then_a_retry_is_one_row(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    memory_bus.lose_replies = 1
    unknown = await gateway.send([event("a"), event("b")])
    assert unknown.status_code == 503
    assert int(unknown.headers["retry-after"]) >= 1
    assert unknown.json()["error"]["code"] == "bus_unavailable"
    assert "same ids" in unknown.json()["error"]["hint"]
    receipt = await gateway.accept([event("a"), event("b")])
    assert (receipt["accepted"], receipt["duplicates"]) == (0, 2)
    assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["a", "b"]


async def test_a_publish_that_never_arrived_is_written_by_the_retry(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    memory_bus.fail_publishes = 1
    assert (await gateway.send([event("a")])).status_code == 503
    assert (await gateway.accept([event("a")]))["accepted"] == 1
    assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["a"]


async def test_duplicates_are_answered_even_when_their_group_fails(gateway: Running, memory_bus: MemoryBus) -> None:
    await gateway.accept([event("a")])
    memory_bus.fail_publishes = 1
    known, new = await asyncio.gather(gateway.send([event("a")]), gateway.send([event("b")]))
    assert (known.status_code, new.status_code) == (202, 503)


async def test_a_full_bus_says_so_and_recovers(lake: Lake, tmp_path: Path) -> None:
    bus = MemoryBus(max_bytes=20_000)
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        accepted = 0
        answer = await gateway.send([event("0")])
        while answer.status_code == 202:
            accepted += 1
            answer = await gateway.send([event(str(accepted))])
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "bus_full"
        assert "retry-after" in answer.headers
        await commit(bus, lake, trim=True)
        receipt = await gateway.accept([event(str(accepted)), event("0")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
        await commit(bus, lake)
    assert stored_ids(lake) == [str(number) for number in range(accepted + 1)]


async def test_a_real_bus_killed_and_back(lake: Lake, tmp_path: Path) -> None:
    with running_nats() as server:
        bus = await open_bus(server.url, credentials=server.credentials, max_bytes=STREAM_BYTES)
        async with running(bus, lake, tmp_path) as gateway:
            await gateway.declare()
            await gateway.accept([event("a")])
            server.kill()
            refused = await gateway.send([event("b")])
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            health = (await gateway.http.get("/v1/health")).json()
            assert (health["status"], health["parts"]["bus"]["status"]) == ("degraded", "down")
            server.start()

            async def is_back() -> bool:
                answer = await gateway.send([event("a"), event("b")])
                return answer.status_code == 202 and answer.json()["duplicates"] >= 1

            await eventually(is_back)
            assert (await on_the_bus(bus, lake))["_id"].to_pylist() == ["a", "b"]
        await bus.close()


async def test_a_stream_that_is_gone_or_another_is_refused_with_the_repair(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    await gateway.accept([event("a")])
    stream = lake.table("main.orders").stream
    await memory_bus.delete(stream)
    gone = await gateway.send([event("b")])
    assert (gone.status_code, gone.json()["error"]["code"]) == (500, "bus_replaced")
    assert "frazil repair bus orders" in gone.json()["error"]["hint"]
    await memory_bus.create(stream)
    another = await gateway.send([event("b")])
    assert (another.status_code, another.json()["error"]["code"]) == (500, "bus_replaced")
    gateway.gateway.writers.retire("main.orders")
    fresh = await gateway.send([event("b")])
    assert (fresh.status_code, fresh.json()["error"]["code"]) == (500, "bus_replaced")


async def test_a_bus_that_lost_its_end_takes_no_events(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """Sequences below the watermark would be given out again, and their events never committed."""
    async with running(memory_bus, lake, tmp_path) as gateway:
        await gateway.declare()
        for number in range(3):
            await gateway.accept([event(str(number))])
        await commit(memory_bus, lake)
        memory_bus.cut_end(lake.table("main.orders").stream, 1)
        assert (await gateway.send([event("new")])).status_code == 500
    async with running(memory_bus, lake, tmp_path) as gateway:
        refused = await gateway.send([event("new")])
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "bus_gap")
        assert "frazil repair bus orders" in refused.json()["error"]["hint"]


async def test_a_long_warm_up_is_not_waited_for(
    gateway: Running, memory_bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    refresh = StreamIds.refresh

    async def slow(self: StreamIds) -> None:
        await released.wait()
        await refresh(self)

    monkeypatch.setattr(StreamIds, "refresh", slow)
    monkeypatch.setattr(gateway_module, "WARM_UP_PATIENCE_SECONDS", 0.05)
    await gateway.declare(name="slow")
    refused = await gateway.send([event("a")], table="slow")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "warming")
    assert "retry-after" in refused.headers
    released.set()
    monkeypatch.setattr(gateway_module, "WARM_UP_PATIENCE_SECONDS", 10.0)
    assert (await gateway.accept([event("a")], table="slow"))["accepted"] == 1


async def test_events_are_taken_in_while_the_catalog_is_away(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await gateway.accept([event("a")])

    def away() -> dict[str, str]:
        raise Unavailable("the catalog is away", code="lake_unavailable")

    monkeypatch.setattr(gateway.gateway.lake, "locations", away)
    monkeypatch.setattr(gateway.gateway.lake.pulse, "beat", lambda: None)
    assert (await gateway.accept([event("b")]))["accepted"] == 1
    unknown_table = await gateway.send([event("b")], table="never_seen")
    assert unknown_table.status_code == 503, "a table that may exist is not denied"
    health = (await gateway.http.get("/v1/health")).json()
    assert (health["status"], health["parts"]["lake"]["status"]) == ("degraded", "down")
