"""One moment for all tables: whatever happens to them meanwhile, and what is said when the moment is lost."""

from __future__ import annotations

import pickle
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from frazil.errors import FrazilError
from frazil.pipeline.sources.postgres.connection import (
    PostgresFailed,
    Timeouts,
    begin,
    configure_session,
    connect,
    cursor_of,
)
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot, SnapshotLost, exported
from frazil.pipeline.sources.postgres.read import plan_table, read_range
from frazil.pipeline.sources.postgres.source_tables import describe, select
from frazil.pipeline.sources.postgres.table_ranges import ranges_of
from tests.pipeline.sources.postgres.conftest import Source, read_table


def test_tables_agree_with_each_other(source: Source) -> None:
    source.run(
        "CREATE TABLE a (n int)", "CREATE TABLE b (n int)", "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)"
    )
    with exported(source.dsn, select(source.dsn, source.schema, ["*"])) as snapshot:
        a, b = snapshot.tables
        first = read_table(snapshot, a, plan_table(a, str))
        source.run(
            "BEGIN", "INSERT INTO a VALUES (2)", "INSERT INTO b VALUES (2)", "DELETE FROM b WHERE n = 1", "COMMIT"
        )
        second = read_table(snapshot, b, plan_table(b, str))
        snapshot.check()
    assert first.to_pylist() == second.to_pylist() == [{"n": 1}]
    assert source.read("b").to_pylist() == [{"n": 2}]


def backend(snapshot: ExportedSnapshot) -> int:
    snapshot.cursor.execute("SELECT pg_backend_pid()")
    found = snapshot.cursor.fetchone()
    assert found is not None
    return int(found[0])


def test_readers_that_come_after_the_exporter_was_lost_are_told_so(source: Source) -> None:
    source.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        plan = plan_table(table, str)
        assert read_table(snapshot, table, plan).num_rows == 1
        exporter = backend(snapshot)
        source.run(f"SELECT pg_terminate_backend({exporter})")
        until_gone = "SELECT count(*) FROM pg_stat_activity WHERE pid = {}"
        deadline = time.monotonic() + 120
        while source.run(until_gone.format(exporter)).strip() != "0":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(SnapshotLost) as caught:
            read_table(snapshot, table, plan)
        assert caught.value.transient and caught.value.code == "postgres_snapshot_lost"
        with pytest.raises(SnapshotLost, match="is gone"):
            snapshot.check()


def test_a_reader_whose_server_goes_away_fails_for_now(source: Source) -> None:
    source.run("CREATE TABLE t AS SELECT n, repeat('x', 500) AS s FROM generate_series(1, 100000) n")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        stream = read_range(
            source.dsn, snapshot.snapshot_id, plan_table(table, str), ranges_of(table)[0], batch_bytes=1 << 16
        )
        next(stream)
        source.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'frazil' AND query LIKE 'COPY (SELECT%'"
        )
        with pytest.raises(PostgresFailed) as caught:
            list(stream)
    assert caught.value.transient and caught.value.code == "postgres_unavailable"


def test_a_range_that_takes_too_long_says_which_setting(source: Source) -> None:
    source.run("CREATE VIEW slow AS SELECT pg_sleep(1)::text AS s FROM generate_series(1, 60)")
    with exported(source.dsn, select(source.dsn, source.schema, ["slow"])) as snapshot:
        table = snapshot.tables[0]
        with pytest.raises(PostgresFailed) as caught:
            list(
                read_range(
                    source.dsn,
                    snapshot.snapshot_id,
                    plan_table(table, str),
                    ranges_of(table)[0],
                    timeouts=Timeouts(statement_seconds=1),
                )
            )
    assert caught.value.code == "postgres_timeout" and "statement_timeout_seconds" in caught.value.hint


def test_an_error_of_the_query_itself_is_not_worth_a_retry(source: Source) -> None:
    source.run("CREATE VIEW broken AS SELECT 1 / (n - 90000) AS v FROM generate_series(1, 100000) n")
    with pytest.raises(FrazilError, match="division by zero") as caught:
        source.read("broken")
    assert caught.value.code == "postgres_refused" and not caught.value.transient


def in_background(source: Source, *statements: str) -> Callable[[], None]:
    """Run statements on the side; the function returned waits for them."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            source.run(*statements)
        except (AssertionError, subprocess.SubprocessError) as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> None:
        thread.join(60)
        assert not thread.is_alive() and not problems, problems

    return wait


REWRITES = [
    "VACUUM FULL t",
    "TRUNCATE t",
    "ALTER TABLE t ALTER COLUMN n TYPE bigint",
    "ALTER TABLE t DROP COLUMN s",
    "DROP TABLE t",
]


@pytest.mark.parametrize("rewrite", REWRITES)
def test_what_would_move_rows_waits_for_the_snapshot(source: Source, rewrite: str) -> None:
    source.run("CREATE TABLE t AS SELECT n, repeat('x', 100) AS s FROM generate_series(1, 20000) n")
    source.run("DELETE FROM t WHERE n % 2 = 0")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        wait = in_background(source, rewrite)
        deadline = time.monotonic() + 120
        while not source.run("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'").strip():
            assert time.monotonic() < deadline, "it does not wait"
            time.sleep(0.05)
        # A reader queues up behind the one that waits: it must not wait for ever, nor read something else.
        table = snapshot.tables[0]
        with pytest.raises(PostgresFailed) as caught:
            list(
                read_range(
                    source.dsn,
                    snapshot.snapshot_id,
                    plan_table(table, str),
                    ranges_of(table)[0],
                    timeouts=Timeouts(lock_seconds=1),
                )
            )
        assert caught.value.code == "postgres_locked"
        snapshot.check()
    wait()


def test_a_table_that_is_being_altered_is_refused_and_the_others_go_on(source: Source) -> None:
    source.run("CREATE TABLE busy (n int)", "CREATE TABLE free (n int)", "INSERT INTO free VALUES (1)")
    until_told = "DO $$ BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END $$"
    wait = in_background(source, "BEGIN", "LOCK TABLE busy", until_told, "COMMIT")
    deadline = time.monotonic() + 120
    while not source.run("SELECT 1 FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock'").strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    chosen = select(source.dsn, source.schema, ["*"])
    with exported(source.dsn, chosen, timeouts=Timeouts(lock_seconds=1)) as snapshot:
        assert [(one.name, one.error.code) for one in snapshot.refused] == [("busy", "postgres_locked")]
        assert snapshot.refused[0].error.transient
        (free,) = snapshot.tables
        assert read_table(snapshot, free, plan_table(free, str)).num_rows == 1
    source.run("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %pg_sleep(600)%'")
    wait()


def test_a_table_dropped_after_it_was_chosen_is_refused(source: Source) -> None:
    source.run("CREATE TABLE a (n int)", "CREATE TABLE b (n int)")
    chosen = select(source.dsn, source.schema, ["*"])
    source.run("DROP TABLE a")
    with exported(source.dsn, chosen) as snapshot:
        assert [(one.name, one.error.code) for one in snapshot.refused] == [("a", "postgres_table_gone")]
        assert [one.relation.name for one in snapshot.tables] == ["b"]


def test_a_view_refreshed_after_the_snapshot_is_refused_instead_of_read_as_empty(source: Source) -> None:
    source.run("CREATE MATERIALIZED VIEW kept AS SELECT 1 AS n")
    relations = select(source.dsn, source.schema, ["kept"]).relations
    with connect(source.dsn, Timeouts()) as connection, cursor_of(connection) as cursor:
        begin(cursor)
        configure_session(cursor, Timeouts())
        source.run("REFRESH MATERIALIZED VIEW kept")
        tables, refused = describe(cursor, relations)
    assert tables == () and [one.error.code for one in refused] == ["postgres_table_changed"]
    assert refused[0].error.transient


def test_everything_that_goes_to_a_task_can_be_pickled(source: Source) -> None:
    source.run("CREATE TABLE t (n int, xs numeric(5,2)[])", "INSERT INTO t VALUES (1, '{1.5}')")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        packed = pickle.dumps((source.dsn, snapshot.snapshot_id, plan_table(table, str), ranges_of(table)[0]))
        assert b"not-a-secret" not in packed
        batches = list(read_range(*pickle.loads(packed)))  # noqa: S301
        assert [batch.num_rows for batch in batches] == [1]


def test_a_moment_is_named_once_though_a_server_may_count_anew(source: Source) -> None:
    """After a restart Postgres gives out ids that it gave out before: a load is told from an earlier try by more."""
    source.run("CREATE TABLE t (n int)")
    found = []
    for _ in range(2):
        with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
            found.append(replace(snapshot, snapshot_id="00000002-00000015-1").moment)
    assert len(set(found)) == 2 and all(moment.startswith("00000002-00000015-1-2") for moment in found)
