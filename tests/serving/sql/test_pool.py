"""The pool with real workers: deadlines, cancels, crashes, fairness, and what a worker keeps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from frazil.errors import FrazilError, InvalidInput
from frazil.serving.sql import QueryPool, QuerySettings, QueryTimeout, Relation, SqlQuery
from frazil.serving.sql.errors import Busy, OutOfMemory, WorkerLost
from tests.serving.sql.tables import ROWS, House, relation, rows, tail_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Runs for minutes and needs no memory.
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 8"
SETTINGS = QuerySettings(workers=2, slow_workers=3, slow_per_owner=2, slow_after_seconds=0.3)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("house") / "warehouse")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(house: House) -> AsyncIterator[QueryPool]:
    made = QueryPool(SETTINGS, house.warehouse)
    await made.start()
    yield made
    await made.close()


async def ask(pool: QueryPool, sql: str, relations: Sequence[Relation] = (), **query: Any) -> Any:
    query.setdefault("owner", "ann")
    result = await pool.run(SqlQuery(sql, **query), lambda: relations)
    return json.loads(result.body)


async def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


async def settled(pool: QueryPool) -> None:
    await until(lambda: pool.status()["ready"] == SETTINGS.workers + 1)


async def test_every_format_behind_all_walls(pool: QueryPool, house: House) -> None:
    table = relation(house.table("formats", [rows(0, 50)]))
    for format in ("json", "ndjson", "csv", "arrow"):
        query = SqlQuery(
            "SELECT *, now() AS at, uuid() AS u, 1::HUGEINT AS h FROM t", "ann", format=format, max_rows=20
        )
        result = await pool.run(query, lambda: [table])
        assert (result.row_count, result.truncated) == (20, True)
        assert [column["name"] for column in result.columns][:2] == ["_seq", "_id"]
        assert result.elapsed_ms > 0 and result.queued_ms >= 0
        if format == "arrow":
            assert pa.ipc.open_stream(result.body).read_all().num_rows == 20
    assert all(state.startswith("up") for state in pool.status()["walls"].values())


async def test_parameters_of_every_kind(pool: QueryPool) -> None:
    assert await ask(pool, "SELECT $1, $2, $3, $4, $5", parameters=[1, 2.5, "ü", None, True]) == [
        [1, 2.5, "ü", None, True]
    ]
    assert await ask(pool, "SELECT $a + 1, $b", parameters={"a": 2**70, "b": [1, 2]}) == [[2**70 + 1, [1, 2]]]
    with pytest.raises(FrazilError) as wrong:
        await ask(pool, "SELECT $1, $2", parameters=[1])
    assert wrong.value.status == 422


async def test_a_statement_is_judged_once(pool: QueryPool) -> None:
    sql = "SELECT a.n FROM t a JOIN other.u USING (n)"
    first = await pool.judge(sql, owner="ann")
    assert {(table.schema, table.name) for table in first.tables} == {("main", "t"), ("other", "u")}
    assert await pool.judge(sql, owner="bob") is first
    with pytest.raises(FrazilError) as refused:
        await pool.judge("COPY (SELECT 1) TO 'x'", owner="ann")
    assert refused.value.status == 422
    with pytest.raises(FrazilError) as broken:
        await pool.judge("SELEC 1", owner="ann")
    assert broken.value.code == "bad_sql"


async def test_filters_are_checked_in_a_worker(pool: QueryPool) -> None:
    await pool.check_filter("team = 'blue' AND n > 3", ROWS)
    for bad in ("n", "missing = 1", "true) OR (true"):
        with pytest.raises(InvalidInput):
            await pool.check_filter(bad, ROWS)


async def test_the_deadline_ends_a_query_and_the_next_is_answered(pool: QueryPool) -> None:
    await settled(pool)
    before = set(_pids(pool))
    with pytest.raises(QueryTimeout) as late:
        await ask(pool, ENDLESS, timeout_seconds=0.2)
    assert late.value.status == 504
    assert not late.value.transient
    assert await ask(pool, "SELECT 42") == [[42]]
    await settled(pool)
    (ended,) = before - set(_pids(pool))
    # Ended and reaped, not only forgotten.
    await until(lambda: not Path(f"/proc/{ended}").exists())


async def test_a_cancelled_query_frees_its_processor(pool: QueryPool) -> None:
    await settled(pool)
    before = set(_pids(pool))
    running = asyncio.create_task(ask(pool, ENDLESS))
    await until(lambda: pool.status()["busy"] == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await settled(pool)
    (ended,) = before - set(_pids(pool))
    await until(lambda: not Path(f"/proc/{ended}").exists())


async def test_memory_is_limited_and_the_worker_replaced(pool: QueryPool) -> None:
    await settled(pool)
    for bomb in (
        "SELECT list(range) FROM range(1000000000)",
        "SELECT length(repeat('x', 4000000000))",
        "SELECT string_agg(range::VARCHAR, ',') FROM range(1000000000)",
        "SELECT count(*) FROM (SELECT DISTINCT range || 'abc' FROM range(1000000000))",
    ):
        with pytest.raises((OutOfMemory, WorkerLost)):
            await ask(pool, bomb, timeout_seconds=60)
        assert await ask(pool, "SELECT 1", owner="bob") == [[1]]


async def test_a_crash_is_no_answer_and_says_nothing(pool: QueryPool) -> None:
    await settled(pool)
    running = asyncio.create_task(ask(pool, ENDLESS))
    await until(lambda: pool.status()["busy"] == 1)
    (pid,) = _pids_in_use(pool)
    os.kill(pid, signal.SIGSEGV)
    with pytest.raises(WorkerLost) as lost:
        await running
    assert (lost.value.code, lost.value.status) == ("query_failed", 500)
    assert "signal" not in lost.value.message
    assert await ask(pool, "SELECT 1") == [[1]]


async def test_an_idle_worker_that_ends_is_replaced(pool: QueryPool) -> None:
    await settled(pool)
    before, ended = pool.status()["replaced"], _pids(pool)
    for pid in ended:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: pool.status()["replaced"] == before + len(ended))
    await settled(pool)
    assert await ask(pool, "SELECT 1") == [[1]]


async def test_the_fork_server_is_started_again(pool: QueryPool) -> None:
    await settled(pool)
    workers = _pids(pool)
    fork_server = pool._processes._process
    os.kill(fork_server.pid, signal.SIGKILL)
    await until(lambda: pool._processes._process is not fork_server)
    await settled(pool)
    assert await ask(pool, "SELECT 1") == [[1]]
    # Workers go with their fork server.
    await until(lambda: not any(_is_running(pid) for pid in workers))


async def test_a_worker_that_talks_nonsense_is_ended(pool: QueryPool) -> None:
    await settled(pool)
    link = pool._idle[-1]
    link.reader.feed_data(b"\xff" * 64)
    with pytest.raises(WorkerLost):
        await ask(pool, "SELECT 1")
    assert await ask(pool, "SELECT 1") == [[1]]
    await until(lambda: not _is_running(link.pid))


async def test_slow_queries_make_room(pool: QueryPool) -> None:
    """More endless queries than the fast lane has places, and a small one is still answered while they run."""
    await settled(pool)
    running = [
        asyncio.create_task(ask(pool, ENDLESS, owner=owner, timeout_seconds=30)) for owner in ("eve", "eve", "mal")
    ]
    try:
        await until(lambda: pool.status()["slow"] == 3)
        # A worker of a slow query is polite to the others.
        await until(lambda: all(os.getpriority(os.PRIO_PROCESS, pid) >= 15 for pid in _pids_in_use(pool)))
        assert [await ask(pool, "SELECT 1", timeout_seconds=10) for _ in range(5)] == [[[1]]] * 5
        # Who has enough slow queries waits in a queue of its own.
        with pytest.raises(QueryTimeout):
            await ask(pool, "SELECT 1", owner="eve", timeout_seconds=0.2)
        assert await ask(pool, "SELECT 1", owner="mal", timeout_seconds=10) == [[1]]
        assert not any(task.done() for task in running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await settled(pool)
    assert await ask(pool, "SELECT 1", owner="eve") == [[1]]


async def test_too_many_waiting_is_busy(house: House) -> None:
    few = QuerySettings(workers=1, slow_workers=0, slow_after_seconds=0.1, max_queued_per_owner=2, max_queued=3)
    pool = QueryPool(few, house.warehouse)
    await pool.start()
    running = asyncio.create_task(ask(pool, ENDLESS))
    try:
        await until(lambda: pool.status()["busy"] == 1)
        waiting = [asyncio.create_task(ask(pool, "SELECT 1")) for _ in range(2)]
        await until(lambda: pool.status()["queue"] == 2)
        with pytest.raises(Busy):
            await ask(pool, "SELECT 1")
        waiting.append(asyncio.create_task(ask(pool, "SELECT 1", owner="bob")))
        await until(lambda: pool.status()["queue"] == 3)
        with pytest.raises(Busy):
            await ask(pool, "SELECT 1", owner="cid")
        running.cancel()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 120) == [[[1]]] * 3
    finally:
        running.cancel()
        await pool.close()
    assert pool.status()["workers"] == 0


async def test_tails_are_sent_once(house: House) -> None:
    pool = QueryPool(QuerySettings(workers=1), house.warehouse)
    await pool.start()
    table = house.table("tailed", [rows(0, 10)])
    whole = rows(0, 40)
    asked: list[int] = []

    async def count(start: int, end: int, key: str = "k") -> Any:
        return await ask(
            pool,
            "SELECT count(*), count(DISTINCT _seq) FROM t WHERE _seq >= 10",
            [relation(table, tail=tail_of(key, whole, start, end, asked))],
        )

    try:
        assert await count(10, 20) == [[10, 10]]
        assert await count(10, 20) == [[10, 10]]
        assert await count(10, 25) == [[15, 15]]
        assert asked == [10, 20]
        # A cut from before, and one that begins later, are there already.
        assert await count(10, 15) == [[5, 5]]
        assert await count(18, 25) == [[7, 7]]
        assert asked == [10, 20]
        # A gap, or one that begins earlier than what is kept, starts anew.
        assert await count(30, 35) == [[5, 5]]
        assert await count(12, 35) == [[23, 23]]
        assert asked == [10, 20, 30, 12]
        assert await count(12, 35, key="another schema") == [[23, 23]]
        assert asked == [10, 20, 30, 12, 12]
        # A statement that fails has delivered all the same; one whose worker was ended has not.
        with pytest.raises(FrazilError):
            await ask(
                pool, "SELECT CAST(team AS INT) FROM t", [relation(table, tail=tail_of("k", whole, 12, 38, asked))]
            )
        assert await count(12, 38) == [[26, 26]]
        assert asked[5:] == [35]
        with pytest.raises(QueryTimeout):
            await ask(pool, ENDLESS, [relation(table, tail=tail_of("k", whole, 12, 38, asked))], timeout_seconds=0.2)
        assert await count(12, 38) == [[26, 26]]
        assert asked[6:] == [12]
    finally:
        await pool.close()


async def test_two_cuts_of_one_stream_in_one_statement(pool: QueryPool) -> None:
    whole = rows(0, 100)
    cuts = [
        Relation("main", name, ROWS, None, None, tail=tail_of("two", whole, start, end))
        for name, start, end in (("late", 60, 100), ("early", 10, 70), ("far", 90, 95))
    ]
    sql = "SELECT (SELECT count(*) FROM late), (SELECT count(*) FROM early), (SELECT count(*) FROM far)"
    for _ in range(4):
        assert await ask(pool, sql, cuts) == [[40, 60, 5]]


async def test_sql_that_was_never_judged_changes_and_reads_nothing(pool: QueryPool, house: House) -> None:
    """The walls below that of statements, together: what is run here should not have come this far."""
    table = relation(house.table("target", [rows(0, 3)]))
    before = sorted(house.folder.rglob("*"))
    for hostile in (
        f"COPY (SELECT 1) TO '{house.folder}/new.csv'",
        f"COPY (SELECT 1) TO '{house.folder}/new.parquet' (FORMAT parquet)",
        f"ATTACH '{house.folder}/new.db'",
        f"EXPORT DATABASE '{house.folder}/dump'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_text('/proc/self/environ')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/x')",
        "SET threads = 50",
        "INSTALL spatial",
        "DELETE FROM t",
        "INSERT INTO t SELECT * FROM t",
    ):
        with pytest.raises(FrazilError) as refused:
            await ask(pool, hostile, [table], timeout_seconds=20)
        assert str(house.folder) not in refused.value.message
    assert sorted(house.folder.rglob("*")) == before
    with pytest.raises(FrazilError):
        await ask(pool, "CREATE TABLE mine AS SELECT 1", owner="eve")
    with pytest.raises(FrazilError) as gone:
        await ask(pool, "SELECT * FROM mine", owner="eve")
    assert gone.value.code == "table_not_found"
    assert await ask(pool, "SELECT count(*) FROM t", [table]) == [[3]]


async def test_what_relations_raises_is_raised_and_the_worker_stays(pool: QueryPool) -> None:
    await settled(pool)
    before = pool.status()["replaced"]

    def gone() -> Sequence[Relation]:
        raise InvalidInput("no such cut")

    with pytest.raises(InvalidInput, match="no such cut"):
        await pool.run(SqlQuery("SELECT 1", "ann"), gone)
    assert pool.status()["replaced"] == before
    assert pool.status()["ready"] == SETTINGS.workers + 1


async def test_large_answers_and_caps(pool: QueryPool) -> None:
    result = await pool.run(SqlQuery("SELECT range FROM range(300000)", "ann", max_rows=300_000), lambda: [])
    assert result.row_count == 300_000 and not result.truncated
    capped = await pool.run(SqlQuery("SELECT range FROM range(300000)", "ann", max_bytes=1000), lambda: [])
    assert capped.truncated and len(capped.body) <= 1000


async def test_no_secret_is_in_sight_and_the_gateway_never_loads_the_engine(pool: QueryPool, house: House) -> None:
    fork_server = Path(f"/proc/{pool._processes._process.pid}")
    # Only root may look: its memory and environment are closed to others of the same user.
    environment = (fork_server / "environ").read_bytes() if os.geteuid() == 0 else b""
    assert b"FRAZIL_TOKEN" not in environment and b"SECRET" not in environment
    assert pool._salt not in environment + (fork_server / "cmdline").read_bytes()
    loaded = "import sys, frazil.serving; print([m for m in ('duckdb', '_duckdb', 'pyiceberg') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert seen.stdout.strip() == "[]"


async def test_missing_walls_are_told_and_can_be_required(house: House) -> None:
    pool = QueryPool(QuerySettings(workers=1, require_walls=True), house.warehouse)
    await pool.start()
    try:
        pool._walls = {**pool._walls, "landlock": "missing: this kernel has no Landlock"}
        with pytest.raises(FrazilError, match="landlock"):
            pool._check_walls()
    finally:
        await pool.close()


def _pids(pool: QueryPool) -> list[int]:
    return [link.pid for link in pool._processes.workers.values()]


def _pids_in_use(pool: QueryPool) -> list[int]:
    return [lease.worker.pid for lease in pool._leases.values() if lease.worker is not None]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
