"""Report of a CSV load: the tolerance of bad records, the load record, and the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frazil.errors import InvalidInput
from frazil.lake.bulk import LoadedFile, LoadRecord
from frazil.lake.catalog import LakeTable
from frazil.pipeline.sources.csv.scan import CsvFile
from frazil.pipeline.sources.csv.task import CsvTaskResult
from frazil.registry import Job
from frazil.requests import LoadRequest, Tolerance

JOB = "ingest csv"
_MAX_COLUMNS = 20


def check_tolerance(done: Sequence[CsvTaskResult], tolerance: Tolerance) -> None:
    """Refuse the whole load if too much of it is bad. What its tasks wrote is left to the search for orphans."""
    rows, bad = sum(piece.rows for piece in done), sum(piece.bad for piece in done)
    if tolerance.allows(bad, rows + bad):
        return
    raise InvalidInput(
        f"{bad:,} of {rows + bad:,} records are bad, and {tolerance} may be: nothing was loaded",
        code="too_many_bad_rows",
        hint="see the examples; declare the column's type, repair the file, or allow more with --max-bad",
        details={
            "rows_in": rows + bad,
            "bad": bad,
            "by_column": _by_column(done),
            "examples": [example for piece in done for example in piece.examples][:10],
        },
    )


def record_of(
    job: Job, load_id: str, source: str, files: Sequence[CsvFile], done: Sequence[CsvTaskResult]
) -> LoadRecord:
    rows, bad = sum(piece.rows for piece in done), sum(piece.bad for piece in done)
    by_file = [sum(piece.rows for piece in done if piece.number == number) for number in range(len(files))]
    return LoadRecord(
        id=load_id,
        source=source or _source(files),
        job=JOB,
        began_at=job.asked_at,
        rows=rows,
        files=tuple(
            LoadedFile(file.path, file.sha256, file.mark.size, of_file)
            for file, of_file in zip(files, by_file, strict=True)
        ),
        report={
            "rows_in": rows + bad,
            "rows_out": rows,
            "quarantined": bad,
            "bytes_in": sum(file.mark.size for file in files),
            "bytes_out": sum(file.size for piece in done for file in piece.files),
            "by_column": _by_column(done),
        },
    )


def report_of(
    request: LoadRequest, table: LakeTable | None, record: LoadRecord | None, known: Sequence[CsvFile], seconds: float
) -> dict[str, Any]:
    """As it is shown and journalled; without a record there was nothing to load."""
    figures = dict(record.report) if record else {"rows_in": 0, "rows_out": 0, "quarantined": 0, "bytes_in": 0}
    loaded = record.files if record else ()
    return {
        "table": request.table.removeprefix("main."),
        "load": record.id if record else None,
        "mode": request.mode,
        "files": [
            *({"name": file.name, "rows": file.rows, "bytes": file.size, "state": "loaded"} for file in loaded),
            *({"name": file.path, "bytes": file.mark.size, "state": "already loaded"} for file in known),
        ],
        **figures,
        "snapshot_id": record.snapshot_id if record else (table.snapshot_id if table else None),
        "seconds": round(seconds, 3),
        "mb_per_second": float(f"{figures['bytes_in'] / 1e6 / seconds:.3g}") if seconds else None,
    }


def _by_column(done: Sequence[CsvTaskResult]) -> dict[str, int]:
    return dict(sum((piece.reasons for piece in done), Counter[str]()).most_common(_MAX_COLUMNS))


def _source(files: Sequence[CsvFile]) -> str:
    names = [Path(file.path).name for file in files]
    return f"csv:{names[0]}" if len(names) == 1 else f"csv:{Path(files[0].path).parent.name}/ ({len(names)} files)"
