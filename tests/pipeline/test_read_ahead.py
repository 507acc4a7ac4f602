"""Reading ahead: the next batch is read while one is being committed, and used only if it is still the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from frazil.bus import Delivery
from frazil.bus.memory import MemoryBus, MemoryStream
from frazil.errors import Unavailable
from frazil.events import first_position
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.commit import Outcome
from frazil.pipeline.commit import BatchLimits, Committer
from frazil.pipeline.commit.target import Commit, TableState
from tests.flow.memory_target import MemoryCatalog, MemoryTarget
from tests.lake_fixtures import events, send

SPEC = parse_table({"name": "t", "columns": {"v": "long"}})
LIMITS = BatchLimits(max_rows=4, max_bytes=1 << 30, max_age_seconds=0.0)
PATIENCE_SECONDS = 120.0


class Watched(MemoryTarget):
    """A target whose commits call back before they begin."""

    def __init__(self, catalog: MemoryCatalog, during: Callable[[int], object]) -> None:
        super().__init__(catalog)
        self._during = during
        self.commits = 0

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        self.commits += 1
        self._during(self.commits)
        return super().commit(base, commit)


@dataclass
class World:
    stream: MemoryStream
    catalog: MemoryCatalog
    executor: ThreadPoolExecutor
    reads: list[int] = field(default_factory=list)
    read: threading.Event = field(default_factory=threading.Event)

    def committer(self, during: Callable[[int], object] = lambda number: None) -> Committer:
        return Committer(
            Watched(self.catalog, during), self.stream, window_seconds=3600, limits=LIMITS, executor=self.executor
        )

    async def drain(self, committer: Committer) -> int:
        commits = 0
        while await committer.cycle(idle_seconds=0.0, draining=True) is not None:
            commits += 1
        return commits

    def ids(self) -> list[str]:
        return [row[1] for row in sorted(self.catalog.table.rows)]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    stream = await MemoryBus().create("t")
    catalog = MemoryCatalog(SPEC, stream="t", identity=stream.identity, watermark=first_position(1))
    with ThreadPoolExecutor(2) as executor:
        made = World(stream, catalog, executor)
        plain = stream.read

        async def read(first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
            """One message at a time, so that a batch takes several reads."""
            found = await plain(first, max_messages=1, max_bytes=max_bytes)
            made.reads.append(first)
            if first >= 3:
                made.read.set()
            return found

        monkeypatch.setattr(stream, "read", read)
        yield made


async def fill(stream: MemoryStream, messages: int, spec: TableSpec = SPEC) -> list[str]:
    """Messages of two events each."""
    ids = [f"e{number:03d}" for number in range(2 * messages)]
    for at in range(0, len(ids), 2):
        await send(stream, events(spec, ids[at : at + 2], v=[at, at + 1]))
    return ids


async def test_the_next_batch_is_read_while_one_is_committed(world: World) -> None:
    ids = await fill(world.stream, 10)
    seen = []

    def until_read(number: int) -> None:
        if number == 1:
            seen.append(world.read.wait(PATIENCE_SECONDS))

    committer = world.committer(until_read)
    assert await committer.cycle(idle_seconds=0.0) is not None
    assert seen == [True], "message 3 was read while the first batch, messages 1 and 2, was being committed"
    assert world.ids() == ids[:4]
    assert await world.drain(committer) == 4 and world.ids() == ids
    assert world.reads == list(range(1, 11)), "nothing was read twice"


async def test_repeats_across_batches_are_judged_in_order(world: World) -> None:
    """The second batch is decoded before the first is committed; that it repeats the first shows only after."""
    for _ in range(3):
        await send(world.stream, events(SPEC, ["a", "b", "c", "a"], v=[1, 2, 3, 4]))
    committer = world.committer()
    done = [await committer.cycle(idle_seconds=0.0) for _ in range(3)]
    assert [(one.rows, one.duplicates) for one in done if one] == [(3, 1), (0, 4), (0, 4)]
    assert world.ids() == ["a", "b", "c"]


async def test_what_was_read_ahead_is_thrown_away_when_another_committer_came_first(world: World) -> None:
    ids = await fill(world.stream, 10)
    loop = asyncio.get_running_loop()

    def another(number: int) -> None:
        if number == 1:
            other = Committer(MemoryTarget(world.catalog), world.stream, window_seconds=3600, limits=LIMITS)
            for _ in range(2):
                asyncio.run_coroutine_threadsafe(other.cycle(idle_seconds=0.0), loop).result(PATIENCE_SECONDS)

    committer = world.committer(another)
    await committer.cycle(idle_seconds=0.0)
    assert world.ids() == ids[:8]
    await world.drain(committer)
    assert world.ids() == ids


async def test_columns_that_came_meanwhile_are_not_lost(world: World) -> None:
    """The next batch has a column that the table got after the first batch was taken up."""
    await fill(world.stream, 2)
    wider = parse_table({"name": "t", "columns": {"v": "long", "w": "string"}})
    await send(world.stream, events(wider, ["x1", "x2", "x3", "x4"], v=[1] * 4, w=list("abcd")))

    committer = world.committer(lambda number: world.read.wait(PATIENCE_SECONDS))
    assert await committer.cycle(idle_seconds=0.0) is not None
    world.catalog.table = type(world.catalog.table)(**{**vars(world.catalog.table), "spec": wider})
    assert await committer.cycle(idle_seconds=0.0) is not None
    assert [row[-1] for row in world.catalog.table.rows if row[1].startswith("x")] == list("abcd")


async def test_a_failed_commit_leaves_no_reading_behind(world: World) -> None:
    ids = await fill(world.stream, 6)

    def fail(number: int) -> None:
        if number == 1:
            raise Unavailable("the disk is away for a moment")

    committer = world.committer(fail)
    with pytest.raises(Unavailable):
        await committer.cycle(idle_seconds=0.0)
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("read ahead")] == []
    await world.drain(committer)
    assert world.ids() == ids
