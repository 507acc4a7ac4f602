"""Archive task: a range of a table of a Postgres becomes data files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from frazil.errors import FrazilError
from frazil.lake.bulk import FilePlan, FileWriter, WrittenFile
from frazil.pipeline.sources.postgres.read import RangeRead


@dataclass(frozen=True)
class ArchiveTask:
    """`constants` are columns that every row of the load has the same value in; `names` those of the target, by the
    plan's."""

    table: str
    reads: RangeRead
    names: Mapping[str, str]
    constants: Mapping[str, pa.Scalar]
    files: FilePlan


@dataclass(frozen=True)
class ArchiveTaskResult:
    table: str
    rows: int = 0
    files: tuple[WrittenFile, ...] = ()
    error: FrazilError | None = None
    """Why the range could not be read; the other tables go on."""
    seconds: float = 0.0


def load_piece(piece: ArchiveTask) -> ArchiveTaskResult:
    """Read the range and write what it holds. A failure is a result, so that other tables are not ended by it."""
    began = time.monotonic()
    try:
        with FileWriter(piece.files) as writer:
            rows = 0
            for batch in piece.reads.batches():
                rows += batch.num_rows
                writer.write(targeted(piece, pa.Table.from_batches([batch])))
        return ArchiveTaskResult(piece.table, rows, tuple(writer.written), seconds=time.monotonic() - began)
    except FrazilError as error:
        return ArchiveTaskResult(piece.table, error=error)


def targeted(piece: ArchiveTask, rows: pa.Table) -> pa.Table:
    """The rows in the target's columns."""
    named = rows.rename_columns([piece.names[name] for name in rows.column_names])
    for name, value in piece.constants.items():
        named = named.append_column(name, pa.repeat(value, rows.num_rows))
    return named
