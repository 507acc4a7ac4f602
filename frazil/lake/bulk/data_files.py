"""Data files of a table, written by a task of a bulk job on any machine.

A file that no commit names yet is seen by nobody: it is the staged half of write, audit, publish. A task that dies
leaves files which the search for orphans removes; one that is tried again writes other ones.
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ParquetFormatWriter, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from frazil.errors import InvalidInput
from frazil.events import conform
from frazil.lake.bulk.dictionary_columns import repeating
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import LakeTable

ROW_GROUP_BYTES = 32 << 20
"""Rows wait for so many bytes of others before they are written together."""
FILE_BYTES = 256 << 20
"""A file is closed once so many bytes of Arrow went into it; Parquet makes a fraction of them."""
MAX_FILES_OF_A_TASK = 5_000
"""As many partitions as a request of events may have."""
MAX_FILES_OF_A_LOAD = 50_000
_OPEN_PARTITIONS = 64
_FAST = {TableProperties.PARQUET_COMPRESSION_LEVEL: "1"}
"""The library's own level, 3, takes 1.6 times as long for files of 0.92 times the size [m]. A table may say another."""


@dataclass(frozen=True)
class FilePlan:
    """All that a task must know to write files of one table. It crosses process borders, and holds the store's keys."""

    table: str
    metadata: str
    io: Mapping[str, str] = field(repr=False)

    @cached_property
    def parsed(self) -> TableMetadata:
        return TableMetadataUtil.parse_raw(self.metadata)


@dataclass(frozen=True)
class WrittenFile:
    """A data file that waits for its commit."""

    rows: int
    size: int
    path: str
    packed: bytes = field(repr=False)
    """PyIceberg's description of it, pickled."""

    def unpacked(self) -> DataFile:
        file = pickle.loads(self.packed)  # noqa: S301 - made by a task of ours
        assert isinstance(file, DataFile)
        return file


def plan_files(lake: Lake, table: LakeTable) -> FilePlan:
    """What the tasks of a bulk job get. The table's history is left out of it: tasks only need its shape."""
    return bare_plan(lake, table.name, table.iceberg.metadata, table.iceberg.io.properties)


def bare_plan(lake: Lake, name: str, metadata: TableMetadata, io: Mapping[str, str]) -> FilePlan:
    shape: dict[str, Any] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    bare = metadata.model_copy(update=shape)
    return FilePlan(name, bare.model_dump_json(), dict(lake.catalog.properties) | dict(io))


def check_file_count(files: int, most: int | None = None) -> None:
    """Refuse rows of too many partitions, by default for a load: each is a file of the store and in a manifest."""
    most = MAX_FILES_OF_A_LOAD if most is None else most
    if files > most:
        raise InvalidInput(
            f"the rows fall into too many partitions: more than {most:,} files",
            code="too_many_partitions",
            hint="declare coarser partitions, as month(at) instead of day(at), or load the rows in order of them",
        )


class FileWriter:
    """Takes rows, leaves files. Used as a context: leaving it by an error takes away what was begun."""

    def __init__(self, plan: FilePlan) -> None:
        self._plan = plan
        self._metadata = plan.parsed
        self._schema: Schema = self._metadata.schema()
        self._arrow = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._io: FileIO = load_file_io(dict(plan.io), self._metadata.location)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._open: dict[str, _OpenFile] = {}
        """By the partition's path."""
        self.written: list[WrittenFile] = []

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()
            return
        try:
            self.close()
        except BaseException:  # what was finished before the error is nobody's
            self.abandon()
            raise

    def abandon(self) -> None:
        """Take away what was written and begun."""
        paths = [file.path for file in self._open.values()] + [file.path for file in self.written]
        for opened in self._open.values():
            with contextlib.suppress(Exception):
                opened.writer.close()
        for path in paths:
            with contextlib.suppress(OSError):
                self._io.delete(path)
        self._waiting, self._waiting_bytes = [], 0
        self._open, self.written = {}, []

    def write(self, rows: pa.Table) -> None:
        """Add rows; columns that the table has and they have not are null."""
        if rows.num_rows == 0:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> list[WrittenFile]:
        """Finish every file. On a local disk they are on the disk itself by then."""
        self._flush()
        for path in list(self._open):
            self._finish(path)
        return self.written

    def _flush(self) -> None:
        if not self._waiting:
            return
        plain = pa.schema([field.remove_metadata() for field in self._arrow])
        rows = pa.concat_tables([conform(piece, plain) for piece in self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        typed = rows.cast(self._arrow)
        with translated(f"write files of {self._plan.table}"):
            for key, part in self._partitioned(typed):
                self._append(key, part)

    def _partitioned(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        spec = self._metadata.spec()
        if spec.is_unpartitioned():
            yield None, rows
            return
        keys = [self._key_column(part, rows) for part in spec.fields]
        codes = _codes(keys)
        starts = np.flatnonzero(np.diff(codes)) + 1
        if len(starts):  # Not for a night of an archive, whose rows are all of one partition.
            order = np.argsort(codes, kind="stable")
            rows = rows.take(pa.array(order))
            keys = [key.take(pa.array(order)) for key in keys]
            starts = np.flatnonzero(np.diff(codes[order])) + 1
        for start, end in zip([0, *starts], [*starts, rows.num_rows], strict=True):
            values = [
                PartitionFieldValue(field=part, value=key[start].as_py())
                for part, key in zip(spec.fields, keys, strict=True)
            ]
            yield PartitionKey(field_values=values, partition_spec=spec, schema=self._schema), rows[start:end]

    def _key_column(self, part: PartitionField, rows: pa.Table) -> pa.Array:
        source = self._schema.find_field(part.source_id)
        key = part.transform.pyarrow_transform(source.field_type)(rows[source.name])
        return key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key

    def _append(self, key: PartitionKey | None, rows: pa.Table) -> None:
        path = key.to_path() if key else ""
        if path not in self._open:
            check_file_count(len(self.written) + len(self._open) + 1, MAX_FILES_OF_A_TASK)
            if len(self._open) >= _OPEN_PARTITIONS:
                self._finish(next(iter(self._open)))
            self._open[path] = self._begin(key, rows)
        opened = self._open[path]
        opened.writer.write(rows)
        opened.rows += rows.num_rows
        opened.size += rows.nbytes
        if opened.size >= FILE_BYTES:
            self._finish(path)

    def _begin(self, key: PartitionKey | None, rows: pa.Table) -> _OpenFile:
        places = load_location_provider(self._metadata.location, self._metadata.properties)
        path = places.new_data_location(f"{uuid.uuid4().hex}.parquet", key)
        output = self._io.new_output(path)
        writer = ParquetFormatWriter(output, self._schema, _FAST | self._metadata.properties)
        # PyIceberg has no word for it.
        writer._parquet_writer_kwargs["use_dictionary"] = repeating(self._schema, rows)
        return _OpenFile(key, path, output, writer)

    def _finish(self, partition: str) -> None:
        opened = self._open.pop(partition)
        with translated(f"write files of {self._plan.table}"):
            opened.writer.close()
        size = len(opened.output)
        described = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=opened.path,
            file_format=FileFormat.PARQUET,
            partition=opened.key.partition if opened.key else Record(),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=self._metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **opened.writer.result().to_serialized_dict(),
        )
        self.written.append(WrittenFile(opened.rows, size, opened.path, pickle.dumps(described)))


def _codes(keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number for each row, the same for rows of the same partition and for no others."""
    codes = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        coded = key.dictionary_encode(null_encoding="encode")
        _, codes = np.unique(codes * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)
    return codes


@dataclass
class _OpenFile:
    key: PartitionKey | None
    path: str
    output: Any
    writer: ParquetFormatWriter
    rows: int = 0
    size: int = 0
