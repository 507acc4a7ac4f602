"""A CSV load from its request to its report: scan, shape, tasks, publish. Doing it again finishes it."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.crash import crash_point
from frazil.errors import Conflict, FrazilError, InvalidInput, NotFound
from frazil.events.table import TableSpec
from frazil.lake import (
    Job,
    Lake,
    LakeTable,
    Load,
    LoadedFile,
    LoadRecord,
    Replaces,
    alter_entity,
    begin_load,
    complete_load,
    forget_files,
    load_entity,
    load_of_file,
    load_position,
    load_record,
    loaded_snapshot,
    plan_files,
    publish_load,
)
from frazil.pipeline.csv.ask import CsvLoad, parse_load
from frazil.pipeline.csv.infer import ColumnFacts, infer
from frazil.pipeline.csv.piece import ROW_ID, Piece, PieceDone, Stamp, load_piece, spool_piece
from frazil.pipeline.csv.ranges import CsvRange
from frazil.pipeline.csv.scan import CsvFile, scan
from frazil.pipeline.csv.shape import FileShape, grown, merged, new_spec, quarantine_of, shape_of, targets, to_infer
from frazil.pipeline.sending import Sender, as_events
from frazil.pipeline.tasks import Tasks

log = logging.getLogger(__name__)

JOB = "ingest csv"
_PIECE_BYTES = 128 << 20
"""A task makes one file of so many bytes of text; fewer where there would not be work for every core."""
_PIECES_PER_CORE = 2
_SENT_ROWS = 50_000

Tell = Callable[[dict[str, Any]], None]


class CsvLoads:
    def __init__(self, lake: Lake, tasks: Tasks, make_table: Callable[[TableSpec], LakeTable], sender: Sender) -> None:
        self.lake = lake
        self.sender = sender
        self.tasks = tasks
        self.make_table = make_table

    def give_up(self) -> None:
        self.tasks.give_up()

    def do(self, job: Job, tell: Tell) -> dict[str, Any]:
        asked = parse_load(job.params)
        try:
            with TemporaryDirectory(prefix="csv-") as spool:
                report = _Run(self, job, asked, Path(spool)).run(tell)
        except FrazilError as error:
            if not error.transient:
                _forget_uploads(asked)
            raise
        _forget_uploads(asked)
        return report


class _Run:
    """One try of one load."""

    def __init__(self, loads: CsvLoads, job: Job, asked: CsvLoad, spool: Path) -> None:
        self._lake = loads.lake
        self._tasks = loads.tasks
        self._make_table = loads.make_table
        self._sender = loads.sender
        self._job = job
        self._asked = asked
        self._spool = spool
        self._began = time.monotonic()

    def run(self, tell: Tell) -> dict[str, Any]:
        table = self._existing()
        scanned = self._scanned(tell)
        crash_point("after_csv_scan")
        fresh, known = self._fresh(table, scanned)
        if not fresh:
            return self._report(table, None, known, [])
        load_id = _load_id(self._job, fresh)
        if table is not None and load_id in table.loads:
            return self._completed(table, load_id, known)
        shapes = [shape_of(file) for file in fresh]
        table = self._shaped(table, shapes, tell)
        quarantine = self._lake.create_bulk(quarantine_of(table.spec))
        crash_point("after_csv_declare")
        pieces = self._pieces(table, quarantine, shapes, load_id)
        if any(column.checks.unique for piece in pieces for column in piece.columns):
            from frazil.pipeline.csv.unique import repeated

            pieces = repeated(
                self._tasks,
                pieces,
                self._spool,
                table=self._spark_name(table) if self._appends else None,
            )
        work = load_piece if table.spec.kind != "entity" else partial(spool_piece, folder=str(self._spool))
        done = self._tasks.run(
            pieces, work, doing=f"load {table.name}", tell=lambda n: tell({"loaded": n, "of": len(pieces)})
        )
        crash_point("after_csv_tasks")
        self._judge(done)
        return self._published(table, quarantine, load_id, fresh, known, done)

    @property
    def _appends(self) -> bool:
        return self._asked.mode == "append"

    def _spark_name(self, table: LakeTable) -> str | None:
        return f"{self._lake.catalog.name}.{table.name}" if table.snapshot_id is not None else None

    def _existing(self) -> LakeTable | None:
        try:
            table = self._lake.table(self._asked.table)
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

    def _scanned(self, tell: Tell) -> list[CsvFile]:
        found = []
        for number, path in enumerate(self._asked.files):
            tell({"scanned": number, "of": len(self._asked.files)})
            found.append(scan(Path(path), self._spool, self._asked.options))
        return found

    def _fresh(self, table: LakeTable | None, scanned: Sequence[CsvFile]) -> tuple[list[CsvFile], list[CsvFile]]:
        """The files to load, and those whose content is in the table already, or twice in this load."""
        fresh: dict[str, CsvFile] = {}
        known = []
        for file in scanned:
            loaded_by = load_of_file(self._lake.registry, table.uuid, file.sha256) if table else None
            # What this very load brought before a kill is not another's.
            by_another = loaded_by is not None and not loaded_by.startswith(_prefix(self._job))
            if file.sha256 in fresh or by_another:
                known.append(file)
            else:
                fresh[file.sha256] = file
        if fresh and not self._appends:
            # The table becomes what these files hold: also those that it has already.
            return [*fresh.values(), *{file.sha256: file for file in known if file.sha256 not in fresh}.values()], []
        return list(fresh.values()), known

    def _shaped(self, table: LakeTable | None, shapes: Sequence[FileShape], tell: Tell) -> LakeTable:
        """The table, made or grown so that the files fit."""
        declared = self._asked.columns
        types = merged(self._facts(to_infer(shapes, declared, table.spec if table else None), shapes, tell))
        if table is None:
            spec = new_spec(self._asked.table, shapes, declared, types)
            try:
                return self._make_table(spec)
            except Conflict:  # an earlier try, or another hand, made it between the look and the leap
                table = self._lake.table(spec.name)
        added = grown(table.spec, declared, types)
        if not added:
            return table
        if table.spec.kind == "entity":
            return alter_entity(self._lake, table.name, lambda spec: spec.with_columns(added)).base
        return self._lake.alter(table.name, lambda spec: spec.with_columns(added))

    def _facts(self, names: Sequence[str], shapes: Sequence[FileShape], tell: Tell) -> dict[str, ColumnFacts]:
        """What all the data says about these columns."""
        if not names:
            return {}
        ranges = [(shape, csv_range) for shape in shapes for csv_range in shape.file.ranges]
        wanted = [_Inferred(csv_range, shape.file, self._asked.options.null_words) for shape, csv_range in ranges]
        found = self._tasks.run(
            wanted, _infer, doing="infer types", tell=lambda n: tell({"inferred": n, "of": len(wanted)})
        )
        facts = {name: ColumnFacts() for name in names}
        for (shape, _), told in zip(ranges, found, strict=True):
            for name, more in zip(shape.names, told, strict=True):
                if name in facts:
                    facts[name] += more
        return facts

    def _pieces(
        self, table: LakeTable, quarantine: LakeTable, shapes: Sequence[FileShape], load_id: str
    ) -> list[Piece]:
        streamed = table.spec.is_streamed
        stamp = Stamp(
            load_id,
            load_position(self._job.asked_at) if streamed else None,
            self._job.asked_at,
            self._job.asked_by or None,
        )
        rows_plan, bad_plan = plan_files(self._lake, table), plan_files(self._lake, quarantine)
        total = sum(csv_range.length for shape in shapes for csv_range in shape.file.ranges)
        cores = self._tasks.cores
        size = min(_PIECE_BYTES, max(1, total // (cores * _PIECES_PER_CORE)))
        pieces = []
        for number, shape in enumerate(shapes):
            columns, extra = targets(shape, table.spec)
            for ranges in _grouped(shape.file.ranges, size):
                pieces.append(
                    Piece(
                        file=Path(shape.file.path).name,
                        number=number,
                        ranges=ranges,
                        dialect=shape.file.dialect,
                        width=shape.file.width,
                        columns=columns,
                        extra=extra,
                        null_words=self._asked.options.null_words,
                        stamp=stamp,
                        rows_plan=rows_plan,
                        bad_plan=bad_plan,
                    )
                )
        return pieces

    def _judge(self, done: Sequence[PieceDone]) -> None:
        """Refuse the whole load if too much of it is bad. What its tasks wrote is left to the search for orphans."""
        rows, bad = sum(piece.rows for piece in done), sum(piece.bad for piece in done)
        if self._asked.tolerance.allows(bad, rows + bad):
            return
        reasons = sum((piece.reasons for piece in done), Counter[str]())
        raise InvalidInput(
            f"{bad:,} of {rows + bad:,} records are bad, and {self._asked.tolerance} may be: nothing was loaded",
            code="too_many_bad_rows",
            hint="look at the examples; declare the column's type, mend the file, or allow more with --max-bad",
            details={
                "rows_in": rows + bad,
                "bad": bad,
                "by_column": dict(reasons.most_common(20)),
                "examples": [example for piece in done for example in piece.examples][:10],
            },
        )

    def _published(
        self,
        table: LakeTable,
        quarantine: LakeTable,
        load_id: str,
        fresh: Sequence[CsvFile],
        known: Sequence[CsvFile],
        done: Sequence[PieceDone],
    ) -> dict[str, Any]:
        rows, bad = sum(piece.rows for piece in done), sum(piece.bad for piece in done)
        by_file = [sum(piece.rows for piece in done if piece.number == number) for number in range(len(fresh))]
        record = LoadRecord(
            id=load_id,
            source=self._asked.source or _source(fresh),
            job=JOB,
            began_at=self._job.asked_at,
            rows=rows,
            files=tuple(
                LoadedFile(file.path, file.sha256, file.mark.size, of_file)
                for file, of_file in zip(fresh, by_file, strict=True)
            ),
            report={
                "rows_in": rows + bad,
                "rows_out": rows,
                "quarantined": bad,
                "bytes_in": sum(file.mark.size for file in fresh),
                "bytes_out": sum(file.size for piece in done for file in piece.files),
                "by_column": dict(sum((piece.reasons for piece in done), Counter[str]()).most_common(20)),
            },
        )
        begin_load(self._lake.registry, table.uuid, record)
        # First what is not good: rows that are seen without their quarantine would look like a load without a flaw.
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

    def _send(self, table: LakeTable, done: Sequence[PieceDone]) -> None:
        """Publish the rows as upserts. Done again after a kill, they have the same ids."""
        entity = load_entity(self._lake, table.name)
        for piece in done:
            words = {"source": f"csv:{piece.file}"[:256], "actor": self._job.asked_by or None}
            for path in piece.spooled:
                for batch in pq.ParquetFile(path).iter_batches(_SENT_ROWS):
                    rows = pa.Table.from_batches([batch])
                    at = self._job.asked_at
                    events = as_events(entity.history.spec, rows, rows[ROW_ID], op="upsert", words=words, at=at)
                    self._sender.send(entity.history, events)
                    crash_point("amid_csv_send")

    def _completed(self, table: LakeTable, load_id: str, known: Sequence[CsvFile]) -> dict[str, Any]:
        """Write down what is published. Also where a try before this one died between the two."""
        registry = self._lake.registry
        record = load_record(registry, table.uuid, load_id)
        assert record is not None, "it is written before the load is published"
        if not self._appends:
            forget_files(registry, table.uuid, but=[file.sha256 for file in record.files])
        made = loaded_snapshot(table, load_id)
        record = complete_load(registry, table.uuid, record, snapshot_id=made.snapshot_id if made else None)
        crash_point("after_load_complete")
        return self._report(table, record, known, record.files)

    def _report(
        self, table: LakeTable | None, record: LoadRecord | None, known: Sequence[CsvFile], loaded: Sequence[LoadedFile]
    ) -> dict[str, Any]:
        seconds = time.monotonic() - self._began
        told = dict(record.report) if record else {"rows_in": 0, "rows_out": 0, "quarantined": 0, "bytes_in": 0}
        return {
            "table": self._asked.table.removeprefix("main."),
            "load": record.id if record else None,
            "mode": self._asked.mode,
            "files": [
                *({"name": file.name, "rows": file.rows, "bytes": file.size, "state": "loaded"} for file in loaded),
                *({"name": file.path, "bytes": file.mark.size, "state": "already loaded"} for file in known),
            ],
            **told,
            "snapshot_id": record.snapshot_id if record else (table.snapshot_id if table else None),
            "seconds": round(seconds, 3),
            "mb_per_second": round(told["bytes_in"] / 1e6 / seconds, 1) if seconds else None,
        }


@dataclass(frozen=True)
class _Inferred:
    csv_range: CsvRange
    file: CsvFile
    null_words: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        # Every task would carry the list of all ranges otherwise.
        return {**self.__dict__, "file": replace(self.file, ranges=())}


def _infer(wanted: _Inferred) -> tuple[ColumnFacts, ...]:
    return infer(wanted.csv_range, wanted.file.dialect, wanted.file.width, wanted.null_words)


def _grouped(ranges: Sequence[CsvRange], size: int) -> list[tuple[CsvRange, ...]]:
    groups: list[list[CsvRange]] = []
    held = size
    for csv_range in ranges:
        if held + csv_range.length > size:
            groups.append([])
            held = 0
        groups[-1].append(csv_range)
        held += csv_range.length
    return [tuple(group) for group in groups]


def _load_id(job: Job, files: Sequence[CsvFile]) -> str:
    """Of the request and of what it found: a file that changed between two tries is another load."""
    content = hashlib.sha256(" ".join(file.sha256 for file in files).encode()).hexdigest()
    return f"{_prefix(job)}{content[:8]}"


def _prefix(job: Job) -> str:
    return job.id.partition("-")[2]


def _source(files: Sequence[CsvFile]) -> str:
    names = [Path(file.path).name for file in files]
    return f"csv:{names[0]}" if len(names) == 1 else f"csv:{Path(files[0].path).parent.name}/ ({len(names)} files)"


def _forget_uploads(asked: CsvLoad) -> None:
    if asked.uploaded:
        for path in asked.files:
            try:
                os.unlink(path)
                os.rmdir(os.path.dirname(path))  # each upload has a folder of its own
            except OSError as error:
                log.warning("could not delete the upload %s: %s", path, error)
