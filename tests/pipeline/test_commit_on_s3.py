"""The commit on an object store that is slow, overloaded, away, cuts connections or loses its replies.

Whatever it does: a cycle ends in a bounded time, with a commit or with an error that says to try again; and in the end
a library that wrote nothing finds each event exactly once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.errors import FrazilError
from frazil.lake.catalog import LakeTable
from frazil.pipeline.commit.committer import Committed
from tests.contract.fault_proxy import Fault, FaultProxy, Kind
from tests.contract.seaweed import SeaweedServer
from tests.contract.servers import PostgresServer
from tests.lake_fixtures import SparkLake, declare, events, send
from tests.store_fixtures import Store, duckdb_rows, open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.s3]

STUCK_SECONDS = 240.0
AT_STAGE = "before_stage"
AT_PUBLISH = "after_audit_before_publish"
AT_SWAP = "before_publish"


@pytest.fixture(scope="module")
def store(
    spark_lake: SparkLake, seaweed: SeaweedServer, s3_proxy: FaultProxy, catalog_postgres: PostgresServer
) -> Iterator[Store]:
    warehouse = seaweed.warehouse("faults", endpoint=s3_proxy.url)
    opened = open_store(spark_lake.session, "faults", catalog_postgres.url, warehouse, **catalog_postgres.credentials)
    yield opened
    opened.lake.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    """Do something, once, when the commit reaches a point of the code."""

    def arm(wanted: str, action: Callable[[], None]) -> None:
        left = [action]

        def reached(name: str) -> None:
            if name == wanted and left:
                left.pop()()

        monkeypatch.setattr("frazil.pipeline.commit.target.crash_point", reached)
        monkeypatch.setattr("frazil.lake.commit.publish.crash_point", reached)

    return arm


class Checker:
    """Sends events, runs cycles, and asks DuckDB, straight at the server, what is there."""

    def __init__(self, store: Store, table: LakeTable, stream: Stream, direct: str) -> None:
        self._store = store
        self._table = table
        self._stream = stream
        self._direct = direct
        self._sent: list[str] = []
        self._run = store.committer(table, stream)

    async def send(self, *ids: str) -> None:
        await send(self._stream, events(self._table.spec, list(ids), v=[1] * len(ids)))
        self._sent += ids

    async def cycle(self) -> Committed | FrazilError | None:
        """One cycle, which must end. An error of ours that says to try again is an answer, any other is not."""
        try:
            return await asyncio.wait_for(self._run.cycle(idle_seconds=0.0), STUCK_SECONDS)
        except FrazilError as error:
            told = error
        assert told.transient and told.message and told.hint, told
        assert self._store.lake.warehouse.secret_access_key not in str(told.body())
        return told

    async def each_event_is_there_once(self) -> None:
        """After the fault: whatever is left is committed by the next cycle, of this committer or of a new one."""
        await self.send("after")
        self._run = self._store.committer(self._table, self._stream)
        done = await self.cycle()
        assert isinstance(done, Committed), done
        assert await self.cycle() is None
        table = self._store.lake.table(self._table.name)
        found = duckdb_rows(table, replace(self._store.lake.warehouse, endpoint=self._direct))
        assert [row[1] for row in found] == self._sent


@pytest.fixture
async def checker(store: Store, seaweed: SeaweedServer) -> Checker:
    """A table with one commit behind it, so that the fault meets a table in full use."""
    table, stream = await declare(store.lake, MemoryBus())
    made = Checker(store, table, stream, seaweed.url)
    await made.send("before")
    assert isinstance(await made.cycle(), Committed)
    await made.send("during1", "during2")
    return made


@contextmanager
def later(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


async def test_a_slow_store_is_waited_for(checker: Checker, s3_proxy: FaultProxy) -> None:
    with s3_proxy.failing(Fault(Kind.SLOW, seconds=0.3)) as fault:
        assert isinstance(await checker.cycle(), Committed)
    assert len(fault.hits) > 5
    await checker.each_event_is_there_once()


@pytest.mark.parametrize("point", [AT_STAGE, AT_PUBLISH])
async def test_the_store_is_away_for_some_seconds(
    checker: Checker, s3_proxy: FaultProxy, at: Callable[[str, Callable[[], None]], None], point: str
) -> None:
    back = threading.Timer(6, s3_proxy.accept)

    def go_down() -> None:
        s3_proxy.refuse()
        back.start()

    at(point, go_down)
    result = await checker.cycle()
    await asyncio.to_thread(back.join, STUCK_SECONDS)
    assert isinstance(result, Committed | FrazilError)
    await checker.each_event_is_there_once()


@pytest.mark.parametrize("point", [AT_STAGE, AT_PUBLISH])
async def test_an_overloaded_store(
    checker: Checker, s3_proxy: FaultProxy, at: Callable[[str, Callable[[], None]], None], point: str
) -> None:
    """503 SlowDown for longer than any client inside the engines goes on asking."""
    fault = Fault(Kind.SLOW_DOWN)
    with s3_proxy.armed(fault) as arm:
        at(point, arm)
        with later(8, lambda: setattr(fault, "times", 0)):
            result = await checker.cycle()
    assert fault.hits and isinstance(result, Committed | FrazilError)
    await checker.each_event_is_there_once()


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.LOSE_REPLY], ids=["write cut", "write done, reply lost"])
@pytest.mark.parametrize("times", [1, 30], ids=["once", "until every client gives up"])
@pytest.mark.parametrize(("point", "code"), [(AT_STAGE, "stage_failed"), (AT_SWAP, "publish_failed")])
async def test_writes_break(
    checker: Checker,
    s3_proxy: FaultProxy,
    at: Callable[[str, Callable[[], None]], None],
    point: str,
    code: str,
    times: int,
    kind: Kind,
) -> None:
    """A write may have taken effect or not. One is bridged by the engine itself, many are an error of ours."""
    fault = Fault(kind, times=times, matches=lambda request: request.method in ("PUT", "POST"))
    with s3_proxy.armed(fault) as arm:
        at(point, arm)
        result = await checker.cycle()
    assert fault.hits, "the fault was not met"
    if times == 1:
        assert isinstance(result, Committed), result
    else:
        # Half the head of an answer is enough for Spark's client, so that the break may be noticed only at publish.
        assert isinstance(result, FrazilError)
        assert result.code == code or (kind is Kind.CUT and result.code == "publish_failed")
    await checker.each_event_is_there_once()


@pytest.mark.parametrize("times", [1, 8], ids=["once", "until a client gives up"])
@pytest.mark.parametrize("point", [AT_STAGE, AT_SWAP])
async def test_reads_break(
    checker: Checker, s3_proxy: FaultProxy, at: Callable[[str, Callable[[], None]], None], point: str, times: int
) -> None:
    fault = Fault(Kind.CUT, times=times, matches=lambda request: request.method == "GET")
    with s3_proxy.armed(fault) as arm:
        at(point, arm)
        result = await checker.cycle()
    assert fault.hits, "the fault was not met"
    assert isinstance(result, Committed | FrazilError)
    await checker.each_event_is_there_once()


async def test_a_store_that_stays_away_is_an_error_that_says_so(checker: Checker, s3_proxy: FaultProxy) -> None:
    with s3_proxy.refusing():
        started = time.monotonic()
        error = await checker.cycle()
        took = time.monotonic() - started
    assert isinstance(error, FrazilError) and error.code == "lake_unavailable" and error.hint
    assert took < STUCK_SECONDS
    await checker.each_event_is_there_once()
