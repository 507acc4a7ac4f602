"""Handler of CSV loads: scan, draft, tasks, types, publish. Doing a load again finishes it.

The text is read once to be scanned and once by the tasks, which write files of a table that is created or extended only
after them, when the types are known from all the data. If those differ from the guess, the tasks run once more.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.crash import crash_point
from frazil.errors import Conflict, FrazilError, InvalidInput, NotFound
from frazil.events.declaration import QUARANTINE_SUFFIX, ColumnType, TableSpec
from frazil.lake.bulk import (
    Load,
    LoadRecord,
    Replaces,
    begin_load,
    check_file_count,
    complete_load,
    forget_draft,
    forget_files,
    load_of_file,
    load_position,
    load_record,
    loaded_snapshot,
    publish_load,
)
from frazil.lake.catalog import Lake, LakeTable, alter_entity, load_entity
from frazil.pipeline.jobs.event_sender import EventSender, as_events
from frazil.pipeline.jobs.spark_tasks import Tasks
from frazil.pipeline.sources.csv.column_mapping import (
    FileColumns,
    columns_to_add,
    decided_types,
    new_spec,
    quarantine_of,
    shape_of,
)
from frazil.pipeline.sources.csv.load_options import csv_options
from frazil.pipeline.sources.csv.load_plan import LoadPlan, draft_as_made, draft_of
from frazil.pipeline.sources.csv.report import check_tolerance, record_of, report_of
from frazil.pipeline.sources.csv.scan import CsvFile, scan_file
from frazil.pipeline.sources.csv.task import ROW_ID, CsvTaskResult, LoadStamp, load_piece, spool_piece
from frazil.pipeline.sources.csv.unpacking import UnpackBudget, UnpackLimits
from frazil.registry import Job, ProgressCallback
from frazil.requests import LoadRequest

log = logging.getLogger(__name__)

_SENT_ROWS = 50_000


class MakeTable(Protocol):
    def __call__(self, spec: TableSpec, *, location: str | None = None) -> LakeTable:
        """The new table, in the folder that its files were drafted in; `Conflict` if the name is taken."""


class CsvLoads:
    def __init__(
        self, lake: Lake, tasks: Tasks, make_table: MakeTable, sender: EventSender, limits: UnpackLimits | None = None
    ) -> None:
        self.lake = lake
        self.limits = limits or UnpackLimits()
        self.sender = sender
        self.tasks = tasks
        self.make_table = make_table

    def cancel(self) -> None:
        self.tasks.cancel()

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        request = LoadRequest.parse(job.params)
        try:
            with TemporaryDirectory(prefix="csv-") as spool:
                report = _Run(self, job, request, Path(spool)).run(report_progress)
        except FrazilError as error:
            if not error.transient:
                _forget_uploads(request)
                self._forget_drafts(job, request.table)
            raise
        _forget_uploads(request)
        return report

    def _forget_drafts(self, job: Job, table: str) -> None:
        for name in (table, f"{table}{QUARANTINE_SUFFIX}"):
            try:
                forget_draft(self.lake, name, draft_mark(job))
            except FrazilError as error:
                log.warning("deletion of drafts failed: %s: %s", name, error)


class _Run:
    """One try of one load."""

    def __init__(self, loads: CsvLoads, job: Job, request: LoadRequest, spool: Path) -> None:
        self._lake = loads.lake
        self._limits = loads.limits
        self._tasks = loads.tasks
        self._make_table = loads.make_table
        self._sender = loads.sender
        self._job = job
        self._request = request
        self._spool = spool
        self._began = time.monotonic()

    def run(self, report_progress: ProgressCallback) -> dict[str, Any]:
        table = self._existing()
        scanned = self._scanned(report_progress)
        crash_point("after_csv_scan")
        fresh, known = self._fresh(table, scanned)
        if not fresh:
            return self._report(table, None, known)
        load_id = _load_id(self._job, fresh)
        if table is not None and load_id in table.loads:
            return self._completed(table, load_id, known)
        shapes = [shape_of(file) for file in fresh]
        draft = draft_of(self._lake, self._request, table, shapes, draft_mark(self._job))
        done = self._worked(draft, table, shapes, load_id, report_progress)
        crash_point("after_csv_tasks")
        table = self._shaped(table, shapes, decided_types(draft.facts(done)), draft.location)
        quarantine = self._lake.create_bulk(quarantine_of(table.spec), location=draft.bad_location)
        crash_point("after_csv_declare")
        if not draft.came_true(table, quarantine, done):
            draft.discard(done)
            crash_point("before_csv_redo")
            done = self._worked(draft_as_made(self._lake, table, quarantine), table, shapes, load_id, report_progress)
        check_tolerance(done, self._request.tolerance)
        return self._published(table, quarantine, load_id, fresh, known, done)

    @property
    def _appends(self) -> bool:
        return self._request.mode == "append"

    def _existing(self) -> LakeTable | None:
        try:
            table = self._lake.table(self._request.table)
        except NotFound as error:
            if error.code != "table_not_found":
                raise
            return None
        if table.spec.kind == "history":
            raise InvalidInput(f"{table.spec.short_name!r} is a history", code="bad_load", hint="load into its entity")
        if table.spec.kind == "entity" and not self._appends:
            raise InvalidInput(
                f"{table.spec.short_name!r} is an entity: its rows change, they are not replaced",
                code="bad_load",
                hint="load without --mode replace; publish deletions as events",
            )
        return table

    def _scanned(self, report_progress: ProgressCallback) -> list[CsvFile]:
        found = []
        budget = UnpackBudget(self._limits)
        for number, path in enumerate(self._request.files):
            report_progress({"scanned": number, "of": len(self._request.files)})
            name = os.path.basename(path) if self._request.uploaded else path
            found.append(scan_file(Path(path), self._spool, csv_options(self._request), name=name, budget=budget))
        return found

    def _fresh(self, table: LakeTable | None, scanned: Sequence[CsvFile]) -> tuple[list[CsvFile], list[CsvFile]]:
        """The files to load, and those whose content is in the table already, or twice in this load."""
        fresh: dict[str, CsvFile] = {}
        known = []
        for file in scanned:
            loaded_by = load_of_file(self._lake.registry, table.uuid, file.sha256) if table else None
            # Files of this load, from before a kill, are not another load's.
            by_another = loaded_by is not None and not loaded_by.startswith(_prefix(self._job))
            if file.sha256 in fresh or by_another:
                known.append(file)
            else:
                fresh[file.sha256] = file
        if fresh and not self._appends:
            # The table becomes what these files hold: also those that it has already.
            return [*fresh.values(), *{file.sha256: file for file in known if file.sha256 not in fresh}.values()], []
        return list(fresh.values()), known

    def _worked(
        self,
        draft: LoadPlan,
        table: LakeTable | None,
        shapes: Sequence[FileColumns],
        load_id: str,
        report_progress: ProgressCallback,
    ) -> list[CsvTaskResult]:
        """What the tasks made of all the files."""
        at = self._job.asked_at
        position = load_position(at) if draft.spec.is_streamed else None
        stamp = LoadStamp(load_id, position, at, self._job.asked_by or None)
        pieces = draft.pieces(shapes, self._request, stamp, self._tasks.cores)
        if any(column.checks.unique for piece in pieces for column in piece.columns):
            from frazil.pipeline.sources.csv.unique import repeated

            pieces = repeated(self._tasks, pieces, self._spool, table=table if self._appends else None)
        work = load_piece if draft.spec.kind != "entity" else partial(spool_piece, folder=str(self._spool))
        doing = f"load {draft.spec.name}"
        done = self._tasks.run(
            pieces, work, doing=doing, report_done=lambda n: report_progress({"loaded": n, "of": len(pieces)})
        )
        try:
            check_file_count(sum(len(piece.files) for piece in done))
        except InvalidInput:
            draft.discard(done)
            raise
        return done

    def _shaped(
        self,
        table: LakeTable | None,
        shapes: Sequence[FileColumns],
        types: Mapping[str, ColumnType],
        location: str | None,
    ) -> LakeTable:
        """The table, created or extended so that the files fit."""
        declared = self._request.columns
        if table is None:
            spec = new_spec(self._request.table, shapes, declared, types)
            try:
                return self._make_table(spec, location=location)
            except Conflict:  # an earlier try, or another process, created it meanwhile
                table = self._lake.table(spec.name)
        added = columns_to_add(table.spec, declared, types)
        if not added:
            return table
        if table.spec.kind == "entity":
            return alter_entity(self._lake, table.name, lambda spec: spec.with_columns(added)).base
        return self._lake.alter(table.name, lambda spec: spec.with_columns(added))

    def _published(
        self,
        table: LakeTable,
        quarantine: LakeTable,
        load_id: str,
        fresh: Sequence[CsvFile],
        known: Sequence[CsvFile],
        done: Sequence[CsvTaskResult],
    ) -> dict[str, Any]:
        rows, bad = sum(piece.rows for piece in done), sum(piece.bad for piece in done)
        record = record_of(self._job, load_id, self._request.source, fresh, done)
        begin_load(self._lake.registry, table.uuid, record)
        # The quarantine first: rows without it would look like a load without bad records.
        if bad:
            publish_load(self._lake, quarantine.name, Load(load_id, bad), [f for p in done for f in p.bad_files])
        crash_point("after_quarantine_publish")
        load = Load(
            load_id,
            rows,
            Replaces.NOTHING if self._appends else Replaces.ALL,
            summary={"frazil.source": record.source[:500]},
            position=load_position(self._job.asked_at) if table.spec.is_streamed else None,
        )
        if table.spec.kind == "entity":
            self._send(table, done)
            return self._completed(table, load_id, known)
        loaded = publish_load(self._lake, table.name, load, [file for piece in done for file in piece.files])
        return self._completed(loaded.table, load_id, known)

    def _send(self, table: LakeTable, done: Sequence[CsvTaskResult]) -> None:
        """Publish the rows as upserts. Done again after a kill, they have the same ids."""
        entity = load_entity(self._lake, table.name)
        for piece in done:
            origin = {"source": f"csv:{piece.file}"[:256], "actor": self._job.asked_by or None}
            for path in piece.spooled:
                for batch in pq.ParquetFile(path).iter_batches(_SENT_ROWS):
                    rows = pa.Table.from_batches([batch])
                    at = self._job.asked_at
                    events = as_events(entity.history.spec, rows, rows[ROW_ID], op="upsert", origin=origin, at=at)
                    self._sender.send(entity.history, events)
                    crash_point("amid_csv_send")

    def _completed(self, table: LakeTable, load_id: str, known: Sequence[CsvFile]) -> dict[str, Any]:
        """Record the published load, also where an earlier try died before it did so."""
        registry = self._lake.registry
        record = load_record(registry, table.uuid, load_id)
        assert record is not None, "it is written before the load is published"
        if not self._appends:
            forget_files(registry, table.uuid, but=[file.sha256 for file in record.files])
        made = loaded_snapshot(table, load_id)
        record = complete_load(registry, table.uuid, record, snapshot_id=made.snapshot_id if made else None)
        crash_point("after_load_complete")
        return self._report(table, record, known)

    def _report(self, table: LakeTable | None, record: LoadRecord | None, known: Sequence[CsvFile]) -> dict[str, Any]:
        return report_of(self._request, table, record, known, time.monotonic() - self._began)


def _load_id(job: Job, files: Sequence[CsvFile]) -> str:
    """Of the request and of what it found: a file that changed between two tries is another load."""
    content = hashlib.sha256(" ".join(file.sha256 for file in files).encode()).hexdigest()
    return f"{_prefix(job)}{content[:8]}"


def draft_mark(job: Job) -> str:
    """The same for every try of a job, so that what a kill left lies where the next try makes its table."""
    return hashlib.sha256(job.id.encode()).hexdigest()[:8]


def _prefix(job: Job) -> str:
    return job.id.partition("-")[2]


def _forget_uploads(request: LoadRequest) -> None:
    if request.uploaded:
        for path in request.files:
            try:
                os.unlink(path)
                os.rmdir(os.path.dirname(path))  # each upload has a folder of its own
            except OSError as error:
                log.warning("deletion of an upload failed: %s: %s", path, error)
