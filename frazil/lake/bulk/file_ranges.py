"""File ranges: the rows of a table in ranges of its files, those that are new since a snapshot, and their reader.

A file remembers for good the number of the commit that brought its rows (Iceberg's data sequence number): also when the
snapshots in between are expired, and through a compaction, which keeps the number of the table it began with. So the
files above the number of an earlier look hold every row that came after it, and sometimes rows from before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile

from frazil.errors import Unavailable
from frazil.events import conform
from frazil.lake.bulk.data_files import FilePlan
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable

_BATCH_ROWS = 1024


@dataclass(frozen=True)
class FileRange:
    """Rows `first` to `stop` of one data file."""

    path: str
    first: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.first


class FileGone(Unavailable):
    """A file that was planned to be read is not there any more: it was compacted, and expired since."""

    code = "file_gone"


def sequence_number(table: LakeTable) -> int:
    """The number of the commit that made the current snapshot; 0 before the first."""
    current = table.iceberg.metadata.current_snapshot()
    return (current.sequence_number or 0) if current else 0


def came_after(table: LakeTable, snapshot_id: int | None, sequence: int) -> bool:
    """Whether the table went on from this snapshot, judged by the snapshots that are left.

    A table that was rolled back, or restored from a backup, counts its commits from there: the numbers of an earlier
    look mean other files then.
    """
    if sequence_number(table) < sequence:
        return False
    current = table.iceberg.metadata.current_snapshot()
    while current is not None and (current.sequence_number or 0) > sequence:
        parent = current.parent_snapshot_id
        current = table.iceberg.metadata.snapshot_by_id(parent) if parent is not None else None
    return current is None or current.snapshot_id == snapshot_id


def ranges_since(
    table: LakeTable, sequence: int, columns: Sequence[str], *, max_rows: int, max_bytes: int
) -> list[FileRange]:
    """The files of the current snapshot that commits after this number brought, cut into ranges.

    A range has at most `max_rows` rows, and about `max_bytes` in these columns as they are stored.
    """
    ids = {table.iceberg.schema().find_field(name).field_id for name in columns}
    found = []
    for file in _live(table, after=sequence):
        stored = sum(size for number, size in (file.column_sizes or {}).items() if number in ids)
        rows = max(1, min(max_rows, max_bytes * file.record_count // stored if stored else max_rows))
        found += [
            FileRange(file.file_path, first, min(first + rows, file.record_count))
            for first in range(0, file.record_count, rows)
        ]
    return found


def files_at(table: LakeTable, snapshot_id: int | None) -> list[FileRange]:
    """All files of one snapshot of the table; none of the table before its first."""
    return [FileRange(file.file_path, 0, file.record_count) for file in _live(table, snapshot_id=snapshot_id)]


def whole_files(table: LakeTable, partition: Mapping[str, Any], *, after: int = 0) -> list[FileRange]:
    """The files of the current snapshot that are in this partition, by identity columns; or of these only what commits
    after this number brought."""
    specs = table.iceberg.metadata.specs()

    def is_in(file: DataFile) -> bool:
        names = [part.name for part in specs[file.spec_id].fields]
        return all(file.partition[names.index(column)] == value for column, value in partition.items())

    return [FileRange(file.file_path, 0, file.record_count) for file in _live(table, after=after) if is_in(file)]


def rows_by(table: LakeTable, column: str) -> dict[Any, int]:
    """How many rows each partition has, by an identity column."""
    specs = table.iceberg.metadata.specs()
    found: dict[Any, int] = {}
    for file in _live(table):
        names = [part.name for part in specs[file.spec_id].fields]
        value = file.partition[names.index(column)]
        found[value] = found.get(value, 0) + file.record_count
    return found


def read_range(plan: FilePlan, wanted: FileRange, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of the range, some at a time and in their order; columns that the file has not are null."""
    with _opened(plan, wanted.path) as parquet:
        columns = [name for name in schema.names if name in parquet.schema_arrow.names]
        for first, group in _groups(parquet):
            rows = parquet.metadata.row_group(group).num_rows
            if first + rows <= wanted.first or first >= wanted.stop:
                continue
            at = first
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
                begin, end = max(0, wanted.first - at), min(batch.num_rows, wanted.stop - at)
                at += batch.num_rows
                if begin < end:
                    yield conform(pa.Table.from_batches([batch.slice(begin, end - begin)]), schema)


def read_rows(plan: FilePlan, path: str, rows: npt.NDArray[np.int64], column: str) -> pa.ChunkedArray:
    """The values of a column at these rows of a file, which are in ascending order. Only their row groups are read."""
    found = list(read_groups(plan, path, rows, column))
    return pa.chunked_array([chunk for values in found for chunk in values.chunks])


def read_groups(plan: FilePlan, path: str, rows: npt.NDArray[np.int64], column: str) -> Iterator[pa.ChunkedArray]:
    """The same, the values of one row group at a time."""
    with _opened(plan, path) as parquet:
        for first, group in _groups(parquet):
            inside = rows[(rows >= first) & (rows < first + parquet.metadata.row_group(group).num_rows)]
            if len(inside):
                values = parquet.read_row_group(group, columns=[column]).column(0)
                yield values if len(inside) == len(values) else values.take(pa.array(inside - first))


@contextmanager
def _opened(plan: FilePlan, path: str) -> Iterator[pq.ParquetFile]:
    io: FileIO = load_file_io(dict(plan.io), plan.parsed.location)
    try:
        with translated(f"read files of {plan.table}"), io.new_input(path).open() as stream:
            yield pq.ParquetFile(stream)
    except Exception as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise FileGone(
                f"a file of {plan.table} was replaced while it was to be read",
                hint="it is tried again with the files of now",
                details={"file": path},
            ) from error
        raise


def _groups(parquet: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """The first row of each row group, and its number."""
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        yield first, group
        first += parquet.metadata.row_group(group).num_rows


def _live(table: LakeTable, *, after: int = 0, snapshot_id: int | None = None) -> list[DataFile]:
    metadata = table.iceberg.metadata
    current = metadata.current_snapshot() if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if current is None:
        return []
    io = table.iceberg.io
    with translated(f"read the files of {table.name}"):
        return [
            entry.data_file
            for manifest in current.manifests(io)
            if (manifest.sequence_number or 0) > after
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
            if (entry.sequence_number or 0) > after
        ]
