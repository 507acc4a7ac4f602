"""Exported snapshot of the database: every range of every table is read as of the same moment.

The exporting connection takes its locks first and its snapshot after them, and keeps both while others read. The locks
(ACCESS SHARE, as any SELECT takes) are what ranges by place rely on: VACUUM FULL, CLUSTER, TRUNCATE and a rewriting
ALTER move rows or remove them for snapshots of the past too, and wait for us instead. A plain VACUUM keeps every row
that the snapshot sees where it is.

If the exporting connection is lost, readers that come later are refused by the server, and those that had begun may
have lost the locks: what was read counts only if `check()` passes after the last range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from adbc_driver_manager.dbapi import Cursor

from frazil.errors import FrazilError
from frazil.pipeline.sources.postgres.connection import (
    DRIVER_ERRORS,
    PostgresFailed,
    Timeouts,
    begin,
    configure_session,
    connect,
    cursor_of,
    rows,
    translated,
)
from frazil.pipeline.sources.postgres.dsn import Dsn
from frazil.pipeline.sources.postgres.source_tables import (
    SelectedTables,
    SkippedTable,
    SourceRelation,
    SourceTable,
    describe,
)

_LOCKABLE = ("r", "p", "v")


class SnapshotLost(PostgresFailed):
    """The exporting connection is gone, and with it the moment that everything was to be read at."""

    code = "postgres_snapshot_lost"


@dataclass(frozen=True)
class ExportedSnapshot:
    """A snapshot that others can read in, while this is open."""

    snapshot_id: str
    tables: tuple[SourceTable, ...]
    refused: tuple[SkippedTable, ...]
    """Tables that cannot be read this time; the others can."""
    taken_at: str
    """The server's clock, ISO 8601 in UTC."""
    cursor: Cursor
    dsn: Dsn

    @property
    def moment(self) -> str:
        """A unique name of what is read in it: after a restart a server counts its snapshots from 1 again."""
        return f"{self.snapshot_id}-{''.join(filter(str.isdigit, self.taken_at))}"

    def check(self) -> None:
        """Pass if the snapshot and its locks were held until now."""
        try:
            rows(self.cursor, "SELECT 1 AS held")
        except DRIVER_ERRORS as error:
            raise lost(self.dsn, str(error)) from None


@contextmanager
def exported(dsn: Dsn, selection: SelectedTables, *, timeouts: Timeouts | None = None) -> Iterator[ExportedSnapshot]:
    """Lock the tables, take the snapshot, describe them in it; hold all of it until the end of the block."""
    timeouts = timeouts or Timeouts()
    with connect(dsn, timeouts) as connection, cursor_of(connection) as cursor:
        try:
            begin(cursor)
            locked, refused = _locked(cursor, selection.relations, dsn, timeouts)
            configure_session(cursor, timeouts)
            locked, unlockable = _touched(cursor, locked, dsn)
            tables, changed = describe(cursor, locked)
            # Without a limit from here on: the connection only waits, and nothing must end it while it does.
            taken = rows(
                cursor,
                "SELECT pg_export_snapshot() AS id, set_config('statement_timeout', '0', true) AS s, "
                "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS at",
            )[0]
        except DRIVER_ERRORS as error:
            raise translated(error, dsn, "taking a snapshot") from None
        yield ExportedSnapshot(
            taken["id"], tables, (*selection.refused, *refused, *unlockable, *changed), taken["at"], cursor, dsn
        )


def lost(dsn: Dsn, why: str) -> SnapshotLost:
    return SnapshotLost(
        f"the snapshot at {dsn.place} is gone: {dsn.redacted(' '.join(why.split()))[:300]}",
        hint="the connection that held it was lost; start the load again, nothing of it was published",
    )


def _locked(
    cursor: Cursor, relations: Sequence[SourceRelation], dsn: Dsn, timeouts: Timeouts
) -> tuple[list[SourceRelation], list[SkippedTable]]:
    """Lock all at once; or one by one where that fails, to find out which of them it is."""
    cursor.execute(f"SET LOCAL lock_timeout = '{timeouts.lock_seconds}s'")
    lockable = [one for one in relations if one.kind in _LOCKABLE]
    failed: dict[SourceRelation, SkippedTable] = {}
    if lockable and _tried(cursor, f"LOCK TABLE {', '.join(map(_named, lockable))} IN ACCESS SHARE MODE", dsn):
        for one in lockable:
            problem = _tried(cursor, f"LOCK TABLE {_named(one)} IN ACCESS SHARE MODE", dsn)
            if problem is not None:
                failed[one] = SkippedTable(one.name, problem)
    return [one for one in relations if one not in failed], list(failed.values())


def _touched(
    cursor: Cursor, relations: Sequence[SourceRelation], dsn: Dsn
) -> tuple[list[SourceRelation], list[SkippedTable]]:
    """LOCK does not take materialized views and foreign tables; looking at one locks it too."""
    failed: dict[SourceRelation, SkippedTable] = {}
    for one in relations:
        if one.kind not in _LOCKABLE:
            problem = _tried(cursor, f"SELECT FROM {one.sql} WHERE false", dsn)
            if problem is not None:
                failed[one] = SkippedTable(one.name, problem)
    return [one for one in relations if one not in failed], list(failed.values())


def _named(relation: SourceRelation) -> str:
    """A plain table alone, without those that inherit from it; a partitioned one with its partitions."""
    return f"ONLY {relation.sql}" if relation.kind == "r" else relation.sql


def _tried(cursor: Cursor, statement: str, dsn: Dsn) -> FrazilError | None:
    """Run it inside a savepoint, so that a failure leaves the transaction usable."""
    cursor.execute("SAVEPOINT trying")
    problem = None
    try:
        cursor.execute(statement)
    except DRIVER_ERRORS as error:
        problem = translated(error, dsn, "locking a table")
        cursor.execute("ROLLBACK TO SAVEPOINT trying")
    cursor.execute("RELEASE SAVEPOINT trying")
    return problem
