"""The pipeline over tables in memory: trouble of one table is its own, and a lost engine is traced to its row.

A new `Pipeline` on the same files is what the supervisor starts after the process has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.events import first_position
from frazil.events.positions import position
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.commit import Outcome
from frazil.pipeline import Pipeline
from frazil.pipeline import pipeline as module
from frazil.pipeline.commit import BatchLimits
from frazil.pipeline.commit.target import Commit, TableState
from frazil.pipeline.pipeline import EngineGone
from frazil.storage import Journal
from tests.flow.memory_target import MemoryCatalog, MemoryTarget
from tests.lake_fixtures import declare, events, send, some_table

PATIENCE_SECONDS = 60.0


class Engine:
    """The JVM: it dies of rows with these ids, and is there again with the next process."""

    def __init__(self) -> None:
        self.deadly: set[str] = set()
        self.is_alive = True
        self.losses = 0
        self.staged: list[list[str]] = []

    def stage(self, ids: list[str]) -> None:
        self.staged.append(ids)
        if self.deadly & set(ids):
            self.is_alive = False
            self.losses += 1
        if not self.is_alive:
            raise Py4JNetworkError("Answer from Java side is empty")


class EngineTarget(MemoryTarget):
    def __init__(self, catalog: MemoryCatalog, engine: Engine) -> None:
        super().__init__(catalog)
        self._engine = engine

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        self._engine.stage(commit.rows["_id"].to_pylist())
        commit.times.stage_seconds += 0.25
        commit.times.publish_seconds += 0.125
        return super().commit(base, commit)

    def attempt(self, rows: Any) -> None:
        self._engine.stage(rows["_id"].to_pylist())
        super().attempt(rows)


class BrokenJournal(Journal):
    """Raises where nobody expects it, for one table."""

    broken = ""

    def append(self, kind: str, **entry: Any) -> None:
        if entry.get("table") == self.broken:
            raise RuntimeError("a bug in the journal")
        super().append(kind, **entry)


class World:
    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.folder = folder
        self.bus = MemoryBus()
        self.engine = Engine()
        self.journal = BrokenJournal(folder / "journal")
        self.catalogs: dict[str, MemoryCatalog] = {}
        self.streams: dict[str, Stream] = {}

    async def table(self) -> LakeTable:
        table, stream = await declare(self.lake, self.bus, some_table())
        self.streams[table.name] = stream
        self.catalogs[table.name] = MemoryCatalog(
            table.spec, stream=table.stream, identity=table.stream_identity, watermark=first_position(1)
        )
        return table

    async def send(self, table: LakeTable, *ids: str) -> None:
        await send(self.streams[table.name], events(table.spec, list(ids), v=list(range(len(ids)))))

    def pipeline(self, **more: Any) -> Pipeline:
        self.engine.is_alive = True
        return Pipeline(
            lake=self.lake,
            bus=self.bus,
            make_target=lambda name: EngineTarget(self.catalogs[name], self.engine),
            is_alive=lambda: self.engine.is_alive,
            journal=self.journal,
            report_path=self.folder / "pipeline.json",
            suspects_path=self.folder / "suspects.json",
            window_seconds=3600,
            limits=BatchLimits(max_age_seconds=0.0),
            **more,
        )

    @asynccontextmanager
    async def running(self, **more: Any) -> Any:
        pipeline = self.pipeline(**more)
        task = asyncio.create_task(pipeline.run())
        try:
            yield task
        finally:
            pipeline.stop()
            await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
            assert task.done()
            task.exception()

    def ids(self, table: LakeTable) -> list[str]:
        return [row[1] for row in sorted(self.catalogs[table.name].table.rows)]

    def report(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "pipeline.json").read_text()))
        except (OSError, ValueError):
            return {}

    def journalled(self, kind: str) -> list[dict[str, Any]]:
        return self.journal.read(limit=1000, kind=kind)


@pytest.fixture
def world(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "_HELD_SECONDS", 0.1)
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(module, "_SHOWN_SECONDS", 0.5)
    return World(lake, tmp_path)


async def until(what: Callable[[], Any], task: asyncio.Task[None] | None = None) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not what():
            assert task is None or not task.done(), "the pipeline ended"
            await asyncio.sleep(0.02)


async def test_an_error_of_one_table_that_nobody_expected_ends_neither_the_others_nor_the_process(world: World) -> None:
    broken, well = await world.table(), await world.table()
    world.journal.broken = broken.name
    async with world.running() as task:
        await world.send(broken, "a")
        await world.send(well, "b")
        await until(lambda: world.ids(well) == ["b"], task)
        await until(lambda: (world.report().get("tables") or {}).get(broken.name, {}).get("failed_cycles", 0) > 3, task)
        told = world.report()
        assert told["state"] == "degraded" and broken.name in told["reason"]
        await world.send(well, "c")
        await until(lambda: world.ids(well) == ["b", "c"], task)
        world.journal.broken = ""
        await world.send(broken, "d")
        await until(lambda: world.report().get("state") == "ok", task)
        await until(lambda: world.ids(broken) == ["a", "d"], task)


async def test_the_status_has_the_times_of_stages_and_publishes(world: World) -> None:
    table = await world.table()

    def seconds() -> tuple[float, float]:
        status = (world.report().get("tables") or {}).get(table.name, {})
        return status.get("stage_seconds", 0.0), status.get("publish_seconds", 0.0)

    async with world.running() as task:
        await world.send(table, "a")
        await until(lambda: seconds() == (0.25, 0.125), task)
        await world.send(table, "b")
        await until(lambda: seconds() == (0.5, 0.25), task)


class FailsAtFirst:
    """Maintenance, folding or jobs: the first run ends by an error, the second goes on."""

    def __init__(self, runs: list[str], name: str) -> None:
        self._runs = runs
        self._name = name

    async def run(self, *words: Any) -> None:
        self._runs.append(self._name)
        if self._runs.count(self._name) == 1:
            raise RuntimeError("a bug in it")
        await asyncio.sleep(3600)


async def test_what_runs_beside_the_commits_is_begun_again_after_an_error_and_told(world: World) -> None:
    table = await world.table()
    runs: list[str] = []
    async with world.running(
        make_maintenance=lambda: FailsAtFirst(runs, "maintenance"),
        make_jobs=lambda: FailsAtFirst(runs, "jobs"),
        make_folding=lambda suspects: FailsAtFirst(runs, "folding"),
    ) as task:
        await until(lambda: sorted(runs) == sorted(["maintenance", "jobs", "folding"] * 2), task)
        await until(lambda: world.report().get("state") == "ok", task)
        await world.send(table, "a")
        await until(lambda: world.ids(table) == ["a"], task)
    assert sorted(entry["work"] for entry in world.journalled("work_failed")) == ["folding", "jobs", "maintenance"]


class RaisesWhenCancelled(FailsAtFirst):
    """Work that meets a lost engine while it is being cancelled."""

    async def run(self, *words: Any) -> None:
        self._runs.append(self._name)
        try:
            await asyncio.sleep(3600)
        finally:
            raise RuntimeError("the engine does not answer")


async def test_work_that_raises_while_it_is_cancelled_does_not_keep_the_pipeline_from_its_end(world: World) -> None:
    table = await world.table()
    runs: list[str] = []
    world.engine.deadly = {"a"}
    async with world.running(make_jobs=lambda: RaisesWhenCancelled(runs, "jobs")) as task:
        await until(lambda: bool(runs))
        await world.send(table, "a")
        await until(task.done)
    assert isinstance(task.exception(), EngineGone)


async def test_a_row_that_the_engine_dies_of_is_traced_while_others_go_on(world: World) -> None:
    suspect, well = await world.table(), await world.table()
    world.engine.deadly = {"deadly"}
    for number in range(8):
        row = ["deadly"] if number == 5 else [f"{number}.3"]
        await world.send(suspect, f"{number}.0", f"{number}.1", f"{number}.2", *row)
    sent: list[str] = []
    for life in range(40):
        sent.append(f"w{life}")
        await world.send(well, sent[-1])
        async with world.running() as task:
            await until(lambda: world.ids(well) == sent or task.done())
            await until(lambda: task.done() or world.catalogs[suspect.name].table.watermark == first_position(9))
            if not task.done():
                await until(lambda: world.report().get("state") == "ok", task)
                break
        assert isinstance(task.exception(), EngineGone)
        assert world.journalled("engine_lost")[0]["tables"][:1] == [suspect.name]
    assert world.ids(suspect) == [f"{n}.{i}" for n in range(8) for i in range(4) if (n, i) != (5, 3)]
    assert world.ids(well) == sent, "the other table commits in every life of the process"
    [letter] = world.catalogs[suspect.name].letters
    assert (letter.id, letter.position, letter.code) == ("deadly", position(6, 3), "engine_lost")
    assert world.engine.losses <= 12, "it is halved, not searched row by row"
    assert json.loads((world.folder / "suspects.json").read_text()) == {}


async def test_a_message_that_is_too_large_as_a_whole_does_not_block_its_table(world: World) -> None:
    """Every part of it can be staged: what is committed at once is a row, the rest is resent in smaller messages."""
    table = await world.table()
    world.catalogs[table.name].max_rows = 6
    ids = [f"a{number}" for number in range(20)]
    async with world.running() as task:
        await world.send(table, *ids)
        await world.send(table, "after")
        await until(lambda: "after" in world.ids(table), task)
        letters = world.catalogs[table.name].letters
        rest = [letter.id for letter in letters]
        assert {letter.code for letter in letters} == {"batch_too_large"}
        assert sorted([*world.ids(table), *rest]) == sorted([*ids, "after"]), "each is a row or a dead letter"
        for start in range(0, len(rest), 5):
            await world.send(table, *rest[start : start + 5])
        await until(lambda: sorted(world.ids(table)) == sorted([*ids, "after"]), task)
        await until(lambda: world.report().get("state") == "ok", task)
    [entry, *_] = world.journalled("dead_letters")
    assert entry["table"] == table.name and entry["events"] == len(rest)


async def test_a_table_that_is_held_back_is_named_and_let_go_when_it_has_committed(world: World) -> None:
    """The engine was killed from outside: nothing becomes a dead letter for it."""
    table = await world.table()
    world.engine.deadly = {"a"}
    await world.send(table, "a", "b")
    async with world.running() as task:
        await until(task.done)
    assert isinstance(task.exception(), EngineGone)
    world.engine.deadly = set()
    pipeline = world.pipeline()
    pipeline._judge_state()
    assert pipeline._status.state == "degraded" and f"{table.name} is held back" in str(pipeline._status.reason)
    async with world.running() as task:
        await until(lambda: world.ids(table) == ["a", "b"], task)
        await until(lambda: world.report().get("state") == "ok", task)
    assert world.catalogs[table.name].letters == [] and world.journalled("let_go")


async def test_an_engine_that_dies_while_nothing_is_committed_is_noticed(world: World) -> None:
    await world.table()
    async with world.running() as task:
        await until(lambda: world.report().get("state") == "ok", task)
        world.engine.is_alive = False
        await until(task.done)
    assert isinstance(task.exception(), EngineGone)
    assert not (world.folder / "suspects.json").exists(), "nobody is to blame"
