"""Gathered rows of one snapshot, the source of an artifact: current rows, their chunks, and the vector of each chunk.

Rows are read once. They and their chunks wait in files beside the artifact, those with a vector apart from those
without, until all are known; the vectors are put into a mapped file. So a table may be larger than memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from frazil.embedding import ChunkColumns, Ints, chunk_names, cut_rows, user_vector_chunks, without_deleted
from frazil.events import id_keys
from frazil.lake.bulk import read_range
from frazil.registry import ProgressCallback
from frazil.serving.artifacts.contents import CHUNK_SCHEMA, ArtifactSource
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.builds.kept_vectors import NAME_SCHEMA, NAMES
from frazil.serving.builds.plan import BuildPlan
from frazil.serving.builds.stored_vectors import StoredVectors, VectorCounts

_ROWS, _WITH, _WITHOUT, _VECTORS = "rows.arrow", "with.arrow", "without.arrow", "vectors.raw"
_PROGRESS_ROWS = 20_000
_BLOCK = 8_192


@dataclass(frozen=True)
class Gathered:
    source: ArtifactSource
    taken: VectorCounts
    names: Path
    """The file with the names of the chunks that have a vector, in their order."""


def gather(plan: BuildPlan, folder: Path, report_progress: ProgressCallback) -> Gathered:
    """Read the snapshot into files of this folder; the source of an artifact."""
    schema = _schema(plan)
    stored = StoredVectors(plan)
    spill = _Spill(folder, schema, stored)
    read, reported, total = 0, 0, sum(part.rows for part in plan.rows.ranges)
    with spill:
        for part in plan.rows.ranges:
            for rows in read_range(plan.rows.plan, part, schema):
                read += rows.num_rows
                there = without_deleted(rows)
                spill.add(there, user_vector_chunks(plan.spec, there)[0] if plan.is_own else cut_rows(plan.spec, there))
                if read - reported >= _PROGRESS_ROWS:
                    reported = read
                    report_progress({"read": read, "of": total})
    homes = np.concatenate([np.empty(0, np.int64), *spill.homes])
    vectors, taken = _placed(stored, homes, plan.model.dims, folder / _VECTORS)
    source = ArtifactSource(
        table=plan.shelf,
        cut=plan.cut,
        schema=schema,
        rows=_batches(folder / _ROWS),
        chunks=(batch for name in (_WITH, _WITHOUT) for batch in _batches(folder / name)),
        vectors=(vectors[at : at + _BLOCK] for at in range(0, len(homes), _BLOCK)),
        model=plan.model,
        quarantined=spill.quarantined,
        index=plan.described,
    )
    return Gathered(source, taken, folder / NAMES)


def _schema(plan: BuildPlan) -> pa.Schema:
    """Files of an entity have no column that is never null; to a search that makes no difference."""
    return pa.schema([field.with_nullable(True) for field in plan.spec.row_schema()])


def _placed(stored: StoredVectors, homes: Ints, dims: int, path: Path) -> tuple[Vectors, VectorCounts]:
    if not len(homes):
        return np.empty((0, dims), np.float32), VectorCounts(0, 0, 0)
    vectors = np.memmap(path, np.float32, "w+", shape=(len(homes), dims))
    return vectors, stored.fill(homes, vectors)


class _Spill:
    """Rows and chunks on their way to the artifact, as Arrow files."""

    def __init__(self, folder: Path, schema: pa.Schema, stored: StoredVectors) -> None:
        self._folder = folder
        self._schema = schema
        self._stored = stored
        self._written = 0
        self._open = contextlib.ExitStack()
        self.homes: list[Ints] = []
        self.quarantined = 0

    def __enter__(self) -> _Spill:
        self._rows = self._writer(_ROWS, self._schema)
        self._with = self._writer(_WITH, CHUNK_SCHEMA)
        self._without = self._writer(_WITHOUT, CHUNK_SCHEMA)
        self._names = self._writer(NAMES, NAME_SCHEMA)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, rows: pa.Table, found: ChunkColumns) -> None:
        """These rows, and the chunks that were cut from them."""
        self._rows.write_table(rows)
        first, self._written = self._written, self._written + rows.num_rows
        if not len(found):
            return
        chunk, content = pa.array(found.chunk, pa.int32()), pa.array(found.hash, pa.string())
        names = chunk_names(pa.array(found.document, pa.string()), chunk, content)
        homes, refused = self._stored.find(id_keys(names))
        chunks = pa.RecordBatch.from_arrays(
            [
                pa.array(first + np.asarray(found.row, np.int64)),
                chunk,
                pa.array(found.start, pa.int32()),
                pa.array(found.end, pa.int32()),
                pa.array(found.text, pa.string()),
            ],
            schema=CHUNK_SCHEMA,
        )
        have = homes >= 0
        self.homes.append(homes[have])
        self.quarantined += len(refused)
        self._with.write_batch(chunks.filter(pa.array(have)))
        self._names.write_batch(pa.RecordBatch.from_arrays([names.filter(pa.array(have))], schema=NAME_SCHEMA))
        if not have.all():
            self._without.write_batch(chunks.filter(pa.array(~have)))

    def _writer(self, name: str, schema: pa.Schema) -> pa.ipc.RecordBatchFileWriter:
        file = self._open.enter_context(pa.OSFile(str(self._folder / name), "wb"))
        return self._open.enter_context(pa.ipc.new_file(file, schema))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
