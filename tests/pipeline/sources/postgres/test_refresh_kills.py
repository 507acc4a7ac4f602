"""A full refresh into an entity is killed at every step. The source goes on meanwhile, and the next try finds it so.

Everything is real but the spreading of tasks: a Postgres, a bus, Spark for the comparison, the commits and the folds.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.bus import EventBus, open_bus
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import load_records
from frazil.lake.catalog import Lake, LakeTable
from frazil.pipeline import SourceSettings
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.entities import FoldCommitter
from frazil.pipeline.jobs import BusSender
from frazil.pipeline.sources.postgres import LoadServices, PostgresLoads
from frazil.registry import finish_job, open_jobs, submit_job
from frazil.tables import create_table
from tests.contract.servers import PostgresServer, running_nats
from tests.kills import Address, address, killed_at
from tests.lake_fixtures import SparkLake
from tests.pipeline.in_process import InProcessTasks
from tests.pipeline.joined_spark import Jvm, jvm_of
from tests.pipeline.sources.postgres.conftest import psql

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STOPS = [
    "after_stream_create_before_table_create",
    "after_history_before_base",
    "after_refresh_spooled",
    "before_fold",
    "after_fold",
    "after_refresh_compared",
    "amid_refresh_sent",
    "amid_refresh_sent:3",
    "amid_refresh_sent:5",
    "after_refresh_sent",
    "after_refresh_begun",
]


class SparkInProcess(InProcessTasks):
    """Ranges are read in this process; what is compared is compared by Spark."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def session(self) -> SparkSession:
        return self._session


class CommittingSender(BusSender):
    """Commits what it has sent when somebody waits for that, as the pipeline does beside the job."""

    def __init__(self, bus: EventBus, lake: Lake, session: SparkSession) -> None:
        super().__init__(bus, lake)
        self._session = session

    def wait_committed(self, table: LakeTable, *, timeout_seconds: float) -> LakeTable:
        target = SparkCommitTarget(self._lake, table.name, self._session)
        stream = self._run(self._bus.open(table.stream))
        committer = Committer(target, stream, window_seconds=86_400, limits=BatchLimits(max_age_seconds=0.0))
        while self._run(committer.cycle(idle_seconds=0.0)) is not None:
            pass
        return super().wait_committed(table, timeout_seconds=timeout_seconds)


@dataclass(frozen=True)
class Around:
    """What a process needs to do the open jobs."""

    lake: Address
    jvm: Jvm
    bus_url: str
    credentials: Mapping[str, str]
    source: SourceSettings
    folder: Path

    @asynccontextmanager
    async def tools(self, session: SparkSession) -> AsyncIterator[LoadServices]:
        lake = self.lake.open()
        bus = await open_bus(self.bus_url, credentials=self.credentials, max_bytes=64 << 20)
        loop = asyncio.get_running_loop()

        def make(spec: TableSpec) -> LakeTable:
            return asyncio.run_coroutine_threadsafe(create_table(bus, lake, spec), loop).result()

        def fold(name: str) -> None:
            while FoldCommitter(lake, name, session).fold() is not None:
                pass

        yield LoadServices(lake, SparkInProcess(session), make, CommittingSender(bus, lake, session), fold)
        await bus.close()
        lake.close()

    async def do_jobs(self, session: SparkSession) -> list[dict[str, Any]]:
        reports = []
        async with self.tools(session) as tools:
            loads = PostgresLoads(tools, {"shop": self.source}, reports=self.folder)
            for job in open_jobs(tools.lake.registry, ["postgres"]):
                reports.append(await asyncio.to_thread(loads.run, job, lambda progress: None))
                finish_job(tools.lake.registry, job, {"state": "done"})
        return reports

    async def settle(self, session: SparkSession, name: str) -> None:
        async with self.tools(session) as tools:
            history = tools.lake.table(f"{name}__history")
            await asyncio.to_thread(tools.sender.wait_committed, history, timeout_seconds=60)
            await asyncio.to_thread(tools.fold, name)


def in_another_process(around: Around) -> None:
    asyncio.run(around.do_jobs(around.jvm.join()))


class Step:
    """A table there that changes, and the entity here that follows it."""

    def __init__(self, around: Around, session: SparkSession, lake: Lake, server: PostgresServer) -> None:
        self.around = around
        self._session = session
        self.lake = lake
        self._server = server
        self.name = "main.follows"
        self._dice = random.Random(5)
        self._numbers = itertools.count(1)

    def sql(self, *statements: str) -> str:
        return psql(self._server, "SET search_path TO refreshed", *statements)

    def change(self) -> None:
        """Four rows are new or changed, some others are gone; what is gone may come back."""
        keys = self._dice.sample(range(1, 13), 4)
        rows = ", ".join(f"({key}, 'v{next(self._numbers)}')" for key in keys)
        left = [key for key in self.there() if key not in keys]
        gone = self._dice.sample(left, min(2, len(left)))
        self.sql(
            f"INSERT INTO kept VALUES {rows} ON CONFLICT (id) DO UPDATE SET v = excluded.v",
            *(f"DELETE FROM kept WHERE id = {key}" for key in gone),
        )

    def ask(self) -> None:
        params = {"source": "shop", "what": "full", "tables": ["kept"], "into": self.name, "kind": "entity"}
        submit_job(self.lake.registry, "postgres", "shop", params, asked_by="someone")

    async def done(self) -> dict[str, Any]:
        (report,) = await self.around.do_jobs(self._session)
        return report

    def there(self) -> dict[int, str]:
        lines = self.sql("SELECT id, v FROM kept").split()
        return {int(key): value for key, _, value in (line.partition("|") for line in lines)}

    async def here(self) -> dict[int, str]:
        await self.around.settle(self._session, self.name)
        rows = self.lake.catalog.load_table(self.name).scan().to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in rows if row["_op"] != "delete"}

    def repeated(self) -> list[tuple[Any, ...]]:
        """Events of the history that say of a key what the one before had said."""
        rows = self.lake.catalog.load_table(f"{self.name}__history").scan().to_arrow().sort_by("_seq").to_pylist()
        last: dict[int, tuple[Any, ...]] = {}
        found = []
        for row in rows:
            said = (row["_op"], row["id"], row["v"])
            if last.get(row["id"]) == said:
                found.append(said)
            last[row["id"]] = said
        assert len({row["_id"] for row in rows}) == len(rows)
        return found


@pytest.fixture(scope="module")
def step(spark_lake: SparkLake, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Step]:
    folder = tmp_path_factory.mktemp("refreshed")
    dsn = folder / "dsn"
    dsn.touch(0o600)
    dsn.write_text(f"postgresql://frazil:not-a-secret@127.0.0.1:{server.port}/postgres")
    psql(server, "CREATE SCHEMA refreshed", "CREATE TABLE refreshed.kept (id int PRIMARY KEY, v text)")
    source = SourceSettings.model_validate({"dsn_file": dsn, "schema": "refreshed", "fetch_rows": 1})
    with running_nats() as bus:
        where = address(spark_lake.lake), jvm_of(spark_lake.session)
        around = Around(*where, bus.url, dict(bus.credentials), source, folder)
        yield Step(around, spark_lake.session, spark_lake.lake, server)


@pytest.mark.parametrize("stop", STOPS)
async def test_a_full_refresh_that_is_killed_at(step: Step, stop: str) -> None:
    """Each finds the entity as the one before left it; where a kill is about its making, there is none yet."""
    if stop in STOPS[:2]:
        step.name = f"main.follows{STOPS.index(stop)}"
    if "fold" in stop:
        step.change()
        step.ask()
        await step.done()  # these events are not folded yet
    step.change()
    step.ask()
    await asyncio.to_thread(killed_at, stop, in_another_process, step.around)
    step.change()
    report = await step.done()
    assert report["rows"] == len(step.there())
    assert await step.here() == step.there()
    assert step.repeated() == [], "nothing is sent again that has arrived"


async def test_after_all_kills_there_is_nothing_left_to_do(step: Step) -> None:
    for _ in range(2):
        step.ask()
        report = await step.done()
    assert (report["upserts"], report["deletes"], report["unchanged"]) == (0, 0, len(step.there()))
    records = load_records(step.lake.registry, step.lake.table(step.name).uuid)
    assert len({record.id for record in records}) == len(records)
    assert await step.here() == step.there()
