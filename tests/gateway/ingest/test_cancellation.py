"""Callers of a writer that leave, and a writer that is taken away from its callers: everybody gets an answer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from frazil.errors import Unavailable
from frazil.events.decoding import Limits, decode_events
from frazil.gateway.ingest.receipt import PreparedEvents
from frazil.gateway.ingest.table_writer import TableWriter
from frazil.tables import StreamIds, TableStream, TailMemory, WarmStream
from tests.gateway.http.harness import Running, event, ndjson


async def writer_of(gateway: Running) -> TableWriter:
    return gateway.gateway.writers.of(await gateway.gateway.directory.fed("main.orders"))


async def stream_of(gateway: Running, tail_memory: TailMemory | None = None) -> TableStream:
    """Another stream of the same table, beside the one of the gateway."""
    return TableStream(
        await gateway.gateway.directory.fed("main.orders"),
        bus=gateway.gateway.bus,
        directory=gateway.gateway.directory,
        window_seconds=3600,
        tail_memory=tail_memory,
    )


async def prepared(gateway: Running, *ids: str) -> PreparedEvents:
    table = await gateway.gateway.directory.fed("main.orders")
    body = ndjson([event(id_) for id_ in ids])
    decoded = decode_events(body, "application/x-ndjson", table.spec, received_at=datetime.now(UTC), limits=Limits())
    return PreparedEvents.of(decoded.batch, decoded.spec)


async def test_who_hangs_up_keeps_no_receipt_from_the_others(gateway: Running) -> None:
    """In the queue, and while the group is on its way."""
    writer = await writer_of(gateway)
    await gateway.accept([event("first")])
    for steps in range(12):
        mine, others = f"mine {steps}", f"others {steps}"
        events = await prepared(gateway, mine), await prepared(gateway, others)
        leaving, staying = [
            asyncio.create_task(writer.submit(each, urgent=False, patience_seconds=5)) for each in events
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        leaving.cancel()
        assert (await asyncio.wait_for(staying, 30)).accepted == 1
        # What was in flight is there or not; sent again, it is there once.
        receipt = await gateway.accept([event(mine), event(others)])
        assert receipt["accepted"] + receipt["duplicates"] == 2 and receipt["duplicates"] >= 1


async def test_who_waited_for_a_warm_up_that_failed_is_told_so_while_another_begins(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await stream_of(gateway)
    loop, second = asyncio.get_running_loop(), list[asyncio.Task[WarmStream]]()
    warm_up = TableStream._warm_up

    async def fail(self: TableStream) -> WarmStream:
        monkeypatch.setattr(TableStream, "_warm_up", warm_up)
        await asyncio.sleep(0.01)
        # The next caller comes after the failure and before those who waited are woken.
        loop.call_soon(lambda: second.append(asyncio.create_task(stream.warm(5))))
        raise Unavailable("the bus is away", code="bus_unavailable")

    monkeypatch.setattr(TableStream, "_warm_up", fail)
    with pytest.raises(Unavailable, match="the bus is away"):
        await stream.warm(5)
    await second[0]
    await stream.close()


async def test_a_writer_that_is_retired_answers_those_who_wait_for_it(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get an error that says to try again: no cancellation of their own, and no wait without an end."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    refresh = StreamIds.refresh

    async def slow(self: StreamIds) -> None:
        begun.set()
        await may_end.wait()
        await refresh(self)

    monkeypatch.setattr(StreamIds, "refresh", slow)
    events = await prepared(gateway, "a")
    for is_done in (False, True):
        writer = TableWriter(await stream_of(gateway), metrics=gateway.gateway.metrics)
        begun.clear()
        may_end.clear()
        submitting = asyncio.create_task(writer.submit(events, urgent=False, patience_seconds=30))
        await begun.wait()
        if is_done:
            # Warm, and retired before the one who waited for that has noticed.
            assert writer.stream._warming is not None
            may_end.set()
            while not writer.stream._warming.done():
                await asyncio.sleep(0)
        await writer.close()
        with pytest.raises(Unavailable) as told:
            await asyncio.wait_for(submitting, 30)
        assert told.value.code == "table_replaced"


@pytest.mark.parametrize("by", ["failure", "cancellation"])
async def test_a_warm_up_that_ends_early_gives_back_the_memory_of_its_tail(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    await gateway.accept([event(str(number), item="x" * 100) for number in range(1000)])
    writers = gateway.gateway.writers
    free = writers.tail_memory.free_bytes
    refresh, taken = StreamIds.refresh, asyncio.Event()

    async def fail(self: StreamIds) -> None:
        await refresh(self)
        assert writers.tail_memory.free_bytes < free
        taken.set()
        if by == "cancellation":
            await asyncio.sleep(60)
        raise Unavailable("the bus is away", code="bus_unavailable")

    monkeypatch.setattr(StreamIds, "refresh", fail)
    stream = await stream_of(gateway, writers.tail_memory)
    warming = asyncio.create_task(stream.warm(30))
    await taken.wait()
    await asyncio.sleep(0)
    await stream.close()
    with pytest.raises(Unavailable):
        await warming
    assert writers.tail_memory.free_bytes == free
