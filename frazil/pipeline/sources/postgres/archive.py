"""Nightly archive: every table of a source as of one moment, each night a partition of its archive table.

The tables are read in one exported snapshot, so that they agree with each other, and published once all are read. A
try that was cut off is made again from the start, in a new snapshot: what it had published is replaced with the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import pyarrow as pa

from frazil.crash import crash_point
from frazil.errors import FrazilError, InvalidInput
from frazil.lake.bulk import (
    Load,
    LoadRecord,
    Replaces,
    begin_load,
    complete_load,
    load_records,
    plan_files,
    publish_load,
)
from frazil.lake.catalog import Lake, LakeTable
from frazil.pipeline.jobs.spark_tasks import Tasks
from frazil.pipeline.settings import SourceSettings
from frazil.pipeline.sources.column_names import clean
from frazil.pipeline.sources.postgres.archive_task import ArchiveTask, ArchiveTaskResult, load_piece
from frazil.pipeline.sources.postgres.dsn import Dsn
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot, exported
from frazil.pipeline.sources.postgres.read import TablePlan, plan_table
from frazil.pipeline.sources.postgres.report import Night, TableLine
from frazil.pipeline.sources.postgres.source_settings import loss_policy_of, range_read, timeouts_of
from frazil.pipeline.sources.postgres.source_tables import SourceTable, select
from frazil.pipeline.sources.postgres.table_ranges import ranges_of
from frazil.pipeline.sources.postgres.target_columns import DATE_COLUMN, archive_spec, fit_columns
from frazil.registry import Job, ProgressCallback
from frazil.requests import PostgresRequest

JOB = "archive postgres"
NAMESPACE = "archive"


@dataclass
class _Archived:
    """One table on its way: planned, read, published, or failed at any of these."""

    source: str
    target: LakeTable | None = None
    plan: TablePlan | None = None
    pieces: list[ArchiveTask] = field(default_factory=list)
    done: list[ArchiveTaskResult] = field(default_factory=list)
    error: FrazilError | None = None


def archive_database(
    lake: Lake,
    tasks: Tasks,
    job: Job,
    request: PostgresRequest,
    settings: SourceSettings,
    dsn: Dsn,
    report_progress: ProgressCallback,
) -> Night:
    """Archive the requested tables. A table that fails has its reason in the report, and the others go on."""
    began = time.monotonic()
    night = request.run_date or job.asked_at.astimezone(UTC).date()
    selection = select(
        dsn, settings.in_schema, request.tables or settings.tables, settings.exclude, timeouts=timeouts_of(settings)
    )
    with exported(dsn, selection, timeouts=timeouts_of(settings)) as snapshot:
        crash_point("after_postgres_snapshot")
        found = [_Archived(refused.name, error=refused.error) for refused in snapshot.refused]
        found += [_planned(lake, tasks, table, snapshot, settings, dsn, request, night) for table in snapshot.tables]
        crash_point("after_postgres_declare")
        pieces = [piece for table in found for piece in table.pieces]
        done = tasks.run(
            pieces,
            load_piece,
            doing=f"archive {request.source}",
            report_done=lambda n: report_progress({"read": n, "of": len(pieces)}),
        )
        snapshot.check()
        taken_at = snapshot.taken_at
        moment = snapshot.moment
    crash_point("after_postgres_read")
    for piece, result in zip(pieces, done, strict=True):
        table = next(one for one in found if one.source == piece.table)
        table.done.append(result)
        table.error = table.error or result.error
    lines = [
        _published(lake, table, job, request, night, moment) for table in sorted(found, key=lambda one: one.source)
    ]
    return Night(request.source, night, taken_at, tuple(lines), time.monotonic() - began)


def _planned(
    lake: Lake,
    tasks: Tasks,
    table: SourceTable,
    snapshot: ExportedSnapshot,
    settings: SourceSettings,
    dsn: Dsn,
    request: PostgresRequest,
    night: date,
) -> _Archived:
    """The archive table, created or extended so that tonight's columns fit; and the ranges to read."""
    archived = _Archived(table.relation.name)
    try:
        plan = plan_table(table, clean, loss_policy_of(settings))
        name = f"{NAMESPACE}.{clean(table.relation.name)}"
        description = f"Nightly archive of {table.relation} at {request.source}."
        first = fit_columns(plan, {})
        spec = archive_spec(
            name, plan, description=description, retention_years=settings.retention_years, names=first.names
        )
        target = lake.table(name) if name in lake.names() else lake.create_bulk(spec)
        if target.spec.description != description:
            raise InvalidInput(
                f"{target.spec.short_name!r} is not the archive of {table.relation} at {request.source}",
                code="archive_taken",
                hint="two tables of this name are archived: exclude one, or rename it in a view",
            )
        fit = fit_columns(plan, target.spec.columns)
        if fit.added:
            target = lake.alter(name, lambda current: current.with_columns(fit.added))
        files = plan_files(lake, target)
        archived.target, archived.plan = target, plan
        archived.pieces = [
            ArchiveTask(
                table=table.relation.name,
                reads=range_read(settings, dsn, snapshot, plan, within),
                names=fit.names,
                constants={DATE_COLUMN: pa.scalar(night, pa.date32())},
                files=files,
            )
            for within in ranges_of(table, int(settings.range_bytes), side_by_side=tasks.cores)
        ]
    except FrazilError as error:
        archived.error = error
    return archived


def _published(lake: Lake, table: _Archived, job: Job, request: PostgresRequest, night: date, moment: str) -> TableLine:
    """Put tonight's rows in the place of what the night has; a line of the report, whatever comes of it."""
    if table.error is not None or table.target is None:
        error = table.error or FrazilError("it could not be planned")
        return TableLine(table.source, error=error.message, hint=error.hint)
    began = time.monotonic()
    target = table.target
    rows = sum(piece.rows for piece in table.done)
    files = [file for piece in table.done for file in piece.files]
    size = sum(file.size for file in files)
    record = LoadRecord(
        id=f"{job.id.partition('-')[2]}-{moment}",
        source=f"postgres:{request.source}/{table.source}",
        job=JOB,
        began_at=job.asked_at,
        rows=rows,
        report={"night": night.isoformat(), "bytes": size},
    )
    try:
        before = _last_night(load_records(lake.registry, target.uuid), night)
        begin_load(lake.registry, target.uuid, record)
        load = Load(
            record.id,
            rows,
            Replaces.PARTITION,
            {DATE_COLUMN: night},
            {"frazil.source": record.source, "frazil.night": night.isoformat()},
        )
        loaded = publish_load(lake, target.name, load, files)
        complete_load(lake.registry, target.uuid, record, snapshot_id=loaded.snapshot_id)
        crash_point("amid_archive_publish")
    except FrazilError as error:
        return TableLine(table.source, error=error.message, hint=error.hint)
    return TableLine(
        table.source,
        archive=loaded.table.spec.short_name,
        rows=rows,
        bytes=size,
        snapshot_id=loaded.snapshot_id,
        metadata_version=loaded.table.metadata_version,
        # Of work: the tables are read together, so that the time of day would be the same for all of them.
        seconds=sum(piece.seconds for piece in table.done) + time.monotonic() - began,
        difference=None if before is None else rows - before,
    )


def _last_night(records: Sequence[LoadRecord], night: date) -> int | None:
    """How many rows the night before this one had; its last run counts."""
    earlier: Mapping[str, int] = {
        record.report["night"]: record.rows
        for record in sorted(records, key=lambda record: record.done_at or datetime.min.replace(tzinfo=UTC))
        if record.done_at is not None and record.report.get("night", "") < night.isoformat()
    }
    return earlier[max(earlier)] if earlier else None
