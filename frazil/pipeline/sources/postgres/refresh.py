"""Refresh of one table from a Postgres: what is new by a cursor column, or all of it.

Into a log, an incremental load appends and a full one replaces. Into an entity both publish events: an incremental load
the rows that are new or changed, a full one the difference to what the entity holds, deletions included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.crash import crash_point
from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events import Token
from frazil.events.declaration import TableSpec, check_declarable, parse_table
from frazil.lake.bulk import (
    Load,
    LoadRecord,
    Replaces,
    begin_load,
    complete_load,
    load_position,
    load_record,
    load_records,
    loaded_snapshot,
    plan_files,
    publish_load,
)
from frazil.lake.catalog import Entity, Lake, LakeTable, alter_entity, load_entity
from frazil.pipeline.jobs.event_sender import EventSender, as_events
from frazil.pipeline.jobs.spark_tasks import Tasks
from frazil.pipeline.settings import SourceSettings
from frazil.pipeline.sources.column_names import clean
from frazil.pipeline.sources.postgres.cursor import CursorRead, CursorState, cursor_start, plan_cursor
from frazil.pipeline.sources.postgres.dsn import Dsn
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot, exported
from frazil.pipeline.sources.postgres.read import plan_table
from frazil.pipeline.sources.postgres.refresh_task import RowPiece, RowStamp, load_rows, row_ids, spool_rows
from frazil.pipeline.sources.postgres.source_settings import loss_policy_of, range_read, timeouts_of
from frazil.pipeline.sources.postgres.source_tables import SourceTable, select
from frazil.pipeline.sources.postgres.table_ranges import Range, ranges_of
from frazil.pipeline.sources.postgres.target_columns import Fitted, fit_columns
from frazil.registry import Job, ProgressCallback
from frazil.requests import PostgresRequest

_SETTLE_SECONDS = 600.0
_MAX_KNOWN_IDS = 5_000_000


@dataclass(frozen=True)
class LoadServices:
    """The services of the pipeline that a load needs."""

    lake: Lake
    tasks: Tasks
    make_table: Callable[[TableSpec], LakeTable]
    sender: EventSender
    fold: Callable[[str], None]
    """Bring the base of an entity up to its history."""


def refresh_tables(
    services: LoadServices,
    job: Job,
    request: PostgresRequest,
    settings: SourceSettings,
    dsn: Dsn,
    report_progress: ProgressCallback,
) -> dict[str, Any]:
    """Refresh one table; the report."""
    selection = select(dsn, settings.in_schema, request.tables, (), timeouts=timeouts_of(settings))
    if len(selection.relations) + len(selection.refused) > 1:
        raise InvalidInput(f"{request.tables[0]!r} matches several tables", code="bad_load", hint="name one of them")
    with exported(dsn, selection, timeouts=timeouts_of(settings)) as snapshot:
        if snapshot.refused:
            raise snapshot.refused[0].error
        return _Refresh(services, job, request, settings, dsn, snapshot, snapshot.tables[0]).run(report_progress)


class _Refresh:
    """One try of one refresh, inside of its snapshot."""

    def __init__(
        self,
        services: LoadServices,
        job: Job,
        request: PostgresRequest,
        settings: SourceSettings,
        dsn: Dsn,
        snapshot: ExportedSnapshot,
        table: SourceTable,
    ) -> None:
        self._services = services
        self._lake = services.lake
        self._job = job
        self._request = request
        self._settings = settings
        self._dsn = dsn
        self._snapshot = snapshot
        self._table = table
        self._began = time.monotonic()
        self._name = request.into or f"main.{clean(table.relation.name)}"
        self._source = f"postgres:{request.source}/{table.relation.name}"
        self._key = tuple(clean(column) for column in request.key or table.primary_key)

    @property
    def _job_name(self) -> str:
        return f"{self._request.what} postgres"

    def run(self, report_progress: ProgressCallback) -> dict[str, Any]:
        target = self._target()
        read = self._cursor(target)
        if read is not None and self._request.overlap and not self._key:
            raise InvalidInput(
                f"{self._table.relation} has no key: rows that are read again cannot be distinguished from new ones",
                code="key_missing",
                hint="name one with `key`, or read without an overlap",
            )
        plan = plan_table(self._table, clean, loss_policy_of(self._settings), where=read.where if read else "")
        fit = fit_columns(plan, target.spec.columns, reserved=())
        target = self._extended(target, fit)
        # With a condition one range, which an index of the cursor can serve; without, many side by side.
        goes_on = read is not None and self._last(target) is not None
        cores = self._services.tasks.cores
        everything = ranges_of(self._table, int(self._settings.range_bytes), side_by_side=cores)
        ranges = (Range(self._table.relation),) if goes_on else everything
        stamp = RowStamp(
            source=self._source,
            load=self._load_id,
            position=load_position(self._job.asked_at),
            at=self._job.asked_at,
            actor=self._job.asked_by or None,
            key=self._key,
            cursor=clean(self._request.cursor) if self._request.cursor else "",
        )
        pieces = [
            RowPiece(
                reads=range_read(self._settings, self._dsn, self._snapshot, plan, within),
                number=number,
                names=fit.names,
                stamp=stamp,
                files=None,
                folder="",
                known=None,
            )
            for number, within in enumerate(ranges)
        ]
        if target.spec.kind == "entity":
            return self._into_entity(load_entity(self._lake, target.name), pieces, read, report_progress)
        return self._into_log(target, pieces, read, report_progress)

    @property
    def _load_id(self) -> str:
        """Of the request, and of the moment that was read: what is read again after a kill is another load."""
        return f"{self._job.id.partition('-')[2]}-{self._snapshot.moment}"

    def _target(self) -> LakeTable:
        try:
            table = self._lake.table(self._name)
        except NotFound as error:
            if error.code != "table_not_found":
                raise
            table = self._made()
        if table.spec.kind not in ("log", "entity"):
            raise InvalidInput(
                f"{table.spec.short_name!r} is of kind {table.spec.kind}", code="bad_load", hint="load into another"
            )
        if table.spec.kind == "entity":
            self._key = table.spec.key
        return table

    def _made(self) -> LakeTable:
        plan = plan_table(self._table, clean, loss_policy_of(self._settings))
        if self._request.kind == "entity" and not self._key:
            raise InvalidInput(
                f"{self._table.relation} has no primary key", code="key_missing", hint="name the key with `key`"
            )
        spec = parse_table(
            {
                "name": self._name,
                "kind": self._request.kind,
                "columns": {column.target: str(column.type) for column in plan.columns},
                "key": list(self._key),
                "unknown_fields": "evolve",
                "description": f"{self._table.relation} at {self._request.source}.",
            }
        )
        check_declarable(spec)
        try:
            return self._services.make_table(spec)
        except Conflict:  # an earlier try, or another process, created it meanwhile
            return self._lake.table(spec.name)

    def _extended(self, target: LakeTable, fit: Fitted) -> LakeTable:
        if not fit.added:
            return target
        if target.spec.unknown_fields != "evolve":
            raise Conflict(
                f"{self._table.relation} has columns that {target.spec.short_name!r} has not: {', '.join(fit.added)}",
                code="schema_drift",
                hint="add them first (frazil tables alter)",
                details={"columns": list(fit.added)},
            )
        if target.spec.kind == "entity":
            return alter_entity(self._lake, target.name, lambda spec: spec.with_columns(fit.added)).base
        return self._lake.alter(target.name, lambda spec: spec.with_columns(fit.added))

    def _last(self, target: LakeTable) -> CursorState | None:
        """How far the last incremental load of this source came."""
        for record in sorted(load_records(self._lake.registry, target.uuid), key=lambda r: r.began_at, reverse=True):
            cursor = record.report.get("cursor")
            if record.source == self._source and record.done_at is not None and cursor:
                state = CursorState.from_json(cursor)
                return state if state.column == self._request.cursor else None
        return None

    def _cursor(self, target: LakeTable) -> CursorRead | None:
        if self._request.what != "incremental":
            return None
        last = self._last(target) or cursor_start(self._table, self._request.cursor)
        return plan_cursor(self._snapshot, self._table, last, overlap=self._request.overlap, nulls=self._request.nulls)

    # Into a log

    def _into_log(
        self, target: LakeTable, pieces: Sequence[RowPiece], read: CursorRead | None, report_progress: ProgressCallback
    ) -> dict[str, Any]:
        finished = self._finished(target)
        if finished is not None:
            return finished
        files = plan_files(self._lake, target)
        known = self._known_ids(target, read)
        work = [replace(piece, files=files, known=known) for piece in pieces]
        done = self._services.tasks.run(
            work,
            load_rows,
            doing=f"load {target.name}",
            report_done=lambda n: report_progress({"read": n, "of": len(work)}),
        )
        self._snapshot.check()
        crash_point("after_refresh_read")
        rows = sum(piece.rows for piece in done)
        record = self._record(rows, read, repeated=sum(piece.repeated for piece in done))
        begin_load(self._lake.registry, target.uuid, record)
        replaces = Replaces.ALL if self._request.what == "full" else Replaces.NOTHING
        position = load_position(self._job.asked_at)
        load = Load(record.id, rows, replaces, summary={"frazil.source": self._source}, position=position)
        loaded = publish_load(self._lake, target.name, load, [file for piece in done for file in piece.files])
        crash_point("after_refresh_publish")
        record = complete_load(self._lake.registry, target.uuid, record, snapshot_id=loaded.snapshot_id)
        return self._report(target, record)

    def _finished(self, target: LakeTable) -> dict[str, Any] | None:
        """A load of this very job that was published before a kill, if there is one: it is only recorded."""
        prefix = f"{self._job.id.partition('-')[2]}-"
        for load_id in target.loads:
            record = load_record(self._lake.registry, target.uuid, load_id) if load_id.startswith(prefix) else None
            if record is not None:
                made = loaded_snapshot(target, load_id)
                made_id = made.snapshot_id if made else None
                return self._report(
                    target, complete_load(self._lake.registry, target.uuid, record, snapshot_id=made_id)
                )
        return None

    def _known_ids(self, target: LakeTable, read: CursorRead | None) -> pa.Array | None:
        """The ids of the stretch that is read again, if there is one."""
        if read is None or not self._request.overlap or target.snapshot_id is None:
            return None
        found: list[pa.Array] = []
        for batch in target.scan(["_id", "_source"]):
            mine = pc.equal(batch.column("_source"), self._source)
            found.append(batch.column("_id").filter(mine))
            if sum(map(len, found)) > _MAX_KNOWN_IDS:
                raise InvalidInput(
                    f"{target.spec.short_name!r} has too many rows to look for repeated ones",
                    code="overlap_too_large",
                    hint="load into an entity: it takes a row that comes again as the same",
                )
        return pa.concat_arrays(found) if found else None

    # Into an entity

    def _into_entity(
        self, entity: Entity, pieces: Sequence[RowPiece], read: CursorRead | None, report_progress: ProgressCallback
    ) -> dict[str, Any]:
        target = entity.base
        with TemporaryDirectory(prefix="postgres-") as folder:
            work = [replace(piece, folder=folder) for piece in pieces]
            done = self._services.tasks.run(
                work,
                spool_rows,
                doing=f"load {target.name}",
                report_done=lambda n: report_progress({"read": n, "of": len(work)}),
            )
            self._snapshot.check()
            crash_point("after_refresh_spooled")
            rows = sum(piece.rows for piece in done)
            if read is not None:
                counts = {"upserts": rows}
                token = self._sent(entity, Path(folder), "upsert", report_progress)
            else:
                counts, token = self._sent_difference(entity, Path(folder), rows, report_progress)
        crash_point("after_refresh_sent")
        record = self._record(rows, read, **counts)
        begin_load(self._lake.registry, target.uuid, record)
        crash_point("after_refresh_begun")
        record = complete_load(self._lake.registry, target.uuid, record, snapshot_id=None)
        return {**self._report(target, record), "token": str(token) if token else None}

    def _sent_difference(
        self, entity: Entity, folder: Path, rows: int, report_progress: ProgressCallback
    ) -> tuple[dict[str, int], Token | None]:
        """Publish what the source has otherwise than the entity, and delete what it has not."""
        from frazil.pipeline.sources.postgres.entity_diff import changed_and_gone

        self._services.sender.wait_committed(entity.history, timeout_seconds=_SETTLE_SECONDS)
        self._services.fold(entity.base.name)
        entity = load_entity(self._lake, entity.base.name)
        changed, gone = folder / "changed", folder / "gone"
        columns = [name for name in entity.spec.columns if name not in self._key]
        changed_and_gone(
            self._services.tasks.session,
            f"{self._lake.catalog.name}.{entity.base.name}" if entity.base.snapshot_id is not None else None,
            folder / "rows",
            (changed, gone),
            key=self._key,
            columns=columns,
            schema=pa.schema([(name, column.type.arrow) for name, column in entity.spec.columns.items()]),
        )
        crash_point("after_refresh_compared")
        tokens = [
            self._sent(entity, changed, "upsert", report_progress),
            self._sent(entity, gone, "delete", report_progress),
        ]
        upserts, deletes = (_count(part) for part in (changed, gone))
        counts = {"upserts": upserts, "deletes": deletes, "unchanged": rows - upserts}
        return counts, next((token for token in reversed(tokens) if token is not None), None)

    def _sent(self, entity: Entity, folder: Path, op: str, report_progress: ProgressCallback) -> Token | None:
        """Send the rows of every file; again after a kill, with the same ids where the rows are the same."""
        token: Token | None = None
        origin = {"source": self._source[:256], "actor": self._job.asked_by or None}
        sent = 0
        for path in sorted(folder.rglob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(batch_size=self._settings.fetch_rows):
                rows = pa.Table.from_batches([batch])
                ids = rows["_row_id"] if "_row_id" in rows.column_names else self._ids_of_difference(rows, op)
                events = as_events(entity.history.spec, rows, ids, op=op, origin=origin, at=self._job.asked_at)
                token = self._services.sender.send(entity.history, events)
                sent += rows.num_rows
                report_progress({"sent": sent, "of": sent})
                crash_point("amid_refresh_sent")
        return token

    def _ids_of_difference(self, rows: pa.Table, op: str) -> pa.Array:
        return row_ids(rows, f"{self._load_id}:{op}", self._key)

    def _record(self, rows: int, read: CursorRead | None, **counts: int) -> LoadRecord:
        report: dict[str, Any] = dict(counts)
        if read is not None:
            report |= {"cursor": read.next.to_json(), "null_cursor": read.null_rows}
        return LoadRecord(
            id=self._load_id,
            source=self._source,
            job=self._job_name,
            began_at=self._job.asked_at,
            rows=rows,
            report=report,
        )

    def _report(self, target: LakeTable, record: LoadRecord) -> dict[str, Any]:
        return {
            "table": target.spec.short_name,
            "source_table": str(self._table.relation),
            "what": self._request.what,
            "load": record.id,
            "rows": record.rows,
            **record.report,
            "snapshot_id": record.snapshot_id,
            "seconds": round(time.monotonic() - self._began, 3),
        }


def _count(folder: Path) -> int:
    return sum(pq.ParquetFile(path).metadata.num_rows for path in folder.rglob("*.parquet"))
