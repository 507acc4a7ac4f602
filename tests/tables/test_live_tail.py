"""The live tail: a stretch of the stream without a hole, whatever is written, committed and forgotten meanwhile."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.bus import Message
from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap
from frazil.events import encode, first_position
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.catalog import Lake
from frazil.tables import LiveTail, SchemaMoved, TailMemory
from tests.gateway.http.harness import Running, commit, event, running

SPEC = parse_table({"name": "orders", "columns": {"item": "string"}})
WIDER = parse_table({"name": "orders", "columns": {"item": "string", "amount": "long"}})


def message(ids: list[str], spec: TableSpec = SPEC, **columns: list[Any]) -> pa.Table:
    schema = spec.wire_schema()
    moment = [0] * len(ids)
    values: dict[str, Any] = {
        "_id": ids,
        "_op": ["append"] * len(ids),
        "_ts": moment,
        "_received_at": moment,
        **columns,
    }
    return pa.table({field.name: pa.array(values.get(field.name, [None] * len(ids)), field.type) for field in schema})


async def published(bus: MemoryBus, messages: list[pa.Table]) -> Any:
    stream = await bus.create("orders")
    for content in messages:
        await stream.publish([Message(encode(content.to_batches()), {})], message_id=content["_id"][0].as_py())
    return stream


def fed(tail: LiveTail, sequence: int, content: pa.Table, counts: list[bool] | None = None) -> None:
    tail.add(sequence, content, None if counts is None else np.array(counts))
    tail.reach(first_position(sequence + 1))


@pytest.mark.parametrize("memory", [0, 700, 1 << 20])
async def test_rows_are_those_that_count_whatever_the_memory(memory_bus: MemoryBus, memory: int) -> None:
    random.seed(memory)
    messages = [message([f"{number}-{part}" for part in range(random.randint(1, 5))]) for number in range(40)]
    stream = await published(memory_bus, messages)
    free = TailMemory(memory)
    tail = LiveTail(stream, free)
    tail.start_at(first_position(1))
    expected: list[tuple[int, str]] = []
    watermark = first_position(1)
    for number, content in enumerate(messages):
        counts = [random.random() < 0.9 for _ in range(content.num_rows)]
        fed(tail, number + 1, content, counts)
        ids = content["_id"].to_pylist()
        expected += [(first_position(number + 1) + at, row_id) for at, row_id in enumerate(ids) if counts[at]]
        if random.random() < 0.3:
            await tail.ready(SPEC, 0)
            assert tail.ready_to == tail.end == first_position(number + 2)
            rows = tail.rows(SPEC, watermark, tail.end)
            above = [row for row in expected if row[0] >= watermark]
            assert list(zip(rows["_seq"].to_pylist(), rows["_id"].to_pylist(), strict=True)) == above
            assert rows.schema.equals(SPEC.row_schema())
            assert tail.extent(watermark).rows == len(above)
        if random.random() < 0.1:
            watermark = first_position(random.randint(watermark >> 20, number + 1))
            tail.forget_below(watermark)
            assert tail.complete_from <= watermark
    tail.release()
    assert free.free_bytes == memory
    assert tail.extent(0).rows == 0


async def test_what_is_forgotten_while_it_is_joined_does_not_come_back(memory_bus: MemoryBus) -> None:
    stream = await published(memory_bus, [message(["a"]), message(["b"])])
    tail = LiveTail(stream, TailMemory(0))
    tail.start_at(first_position(1))
    fed(tail, 1, message(["a"]))
    joining = asyncio.create_task(tail.ready(SPEC, 0))
    await asyncio.sleep(0)
    tail.forget_below(first_position(2))
    await joining
    fed(tail, 2, message(["b"]))
    await tail.ready(SPEC, 0)
    assert tail.rows(SPEC, first_position(2), tail.end)["_id"].to_pylist() == ["b"]


async def test_what_is_committed_is_not_wanted_from_the_bus(memory_bus: MemoryBus) -> None:
    stream = await published(memory_bus, [message(["a"]), message(["b"])])
    tail = LiveTail(stream, TailMemory(0))
    tail.start_at(first_position(1))
    fed(tail, 1, message(["a"]))
    fed(tail, 2, message(["b"]))
    await stream.trim(2)
    with pytest.raises(BusGap):
        await tail.ready(SPEC, first_position(1))  # whoever does not know of the commit cannot tell it from a loss
    await tail.ready(SPEC, first_position(2))
    assert tail.rows(SPEC, first_position(2), tail.end)["_id"].to_pylist() == ["b"]
    assert tail.complete_from == first_position(2)


async def test_a_new_column_shows_once_the_declaration_has_it(memory_bus: MemoryBus) -> None:
    tail = LiveTail(await published(memory_bus, [message(["a"])]), TailMemory(1 << 20))
    tail.start_at(first_position(1))
    fed(tail, 1, message(["a"], item=["ice"]))
    await tail.ready(SPEC, 0)
    fed(tail, 2, message(["b"], WIDER, item=["snow"], amount=[7]))
    with pytest.raises(SchemaMoved):
        await tail.ready(SPEC, 0)
    await tail.ready(WIDER, 0)
    rows = tail.rows(WIDER, 0, tail.end)
    assert rows["_id"].to_pylist() == ["a", "b"]
    assert rows["amount"].to_pylist() == [None, 7]


async def live_ids(running: Running, name: str = "main.orders") -> list[str]:
    table = await running.gateway.directory.table(name)
    tail = await running.gateway.writers.stream_of(table).tail_up_to_head(patience_seconds=10)
    assert tail is not None
    await tail.ready(table.spec, table.watermark)
    found: list[str] = tail.rows(table.spec, table.watermark, tail.ready_to)["_id"].to_pylist()
    return found


async def test_the_tail_of_a_gateway_has_what_another_one_took_in(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(memory_bus, lake, tmp_path) as first, running(memory_bus, lake, tmp_path) as second:
        await first.declare()
        await first.accept([event("a"), event("b")])
        assert await live_ids(second) == ["a", "b"]
        await second.accept([event("b"), event("c")])
        assert await live_ids(first) == await live_ids(second) == ["a", "b", "c"]


async def test_a_commit_takes_events_out_of_the_tail(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.accept([event("a"), event("b")])
    assert await live_ids(gateway) == ["a", "b"]
    await commit(memory_bus, lake, trim=True)
    await gateway.gateway.directory.refresh()
    assert await live_ids(gateway) == []
    await gateway.accept([event("b"), event("c")])
    assert await live_ids(gateway) == ["c"]


async def test_a_gateway_that_starts_late_has_the_tail_of_before(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(memory_bus, lake, tmp_path) as first:
        await first.declare()
        await first.accept([event("a")])
        await commit(memory_bus, lake, trim=True)
        await first.accept([event("b")])
    async with running(memory_bus, lake, tmp_path) as second:
        assert await live_ids(second) == ["b"]
