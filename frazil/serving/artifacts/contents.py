"""Contents of an artifact: its rows, its chunks and its vectors, mapped into memory and never copied.

The row number of a document is its place in `rows.arrow`; a chunk names its document by it. The ordinal of a chunk is
its place in `chunks.arrow` and in `vectors.npy` (NumPy's own format, normalised float32). Indexes know ordinals only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import FrazilError
from frazil.serving.artifacts.manifest import ArtifactModel, Counts, SourceState, Vectors

ROWS = "rows.arrow"
CHUNKS = "chunks.arrow"
VECTORS = "vectors.npy"
CHUNK_SCHEMA = pa.schema(
    [
        pa.field("document", pa.int64(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("start", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
_BATCH_ROWS = 1 << 20
_BATCH_BYTES = 64 << 20
# A vector this short has no direction; one this long has none left once it is divided by its length in float32.
_SHORTEST, _LONGEST = 1e-12, 1e30
# What is left of rounding when a float32 vector is normalised is far below this.
_IS_ONE = 1e-5


class BuildRefused(FrazilError):
    """What was handed to a build contradicts itself; there is no artifact."""

    code = "build_refused"


@dataclass(frozen=True)
class ArtifactSource:
    """What an artifact is built from, as streams that are read once: at no time is all of it in memory.

    `rows` has the current version of each document. `chunks` are of `CHUNK_SCHEMA`; those that have a vector come
    first, in the order of the vectors, those in quarantine after them.
    """

    table: str
    cut: SourceState
    schema: pa.Schema
    rows: Iterable[pa.RecordBatch]
    chunks: Iterable[pa.RecordBatch] = ()
    vectors: Iterable[Vectors] = ()
    model: ArtifactModel | None = None
    quarantined: int = 0
    index: Mapping[str, Any] = field(default_factory=dict)


class Contents:
    """The files of an artifact, open. They stay mapped while anything that came from here is in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = _Batches(folder / ROWS)
        self._chunks = _Batches(folder / CHUNKS)
        self.vectors = mapped(folder / VECTORS)

    @property
    def rows(self) -> pa.Table:
        return self._rows.table

    @property
    def chunks(self) -> pa.Table:
        return self._chunks.table

    def take_rows(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these numbers, in this order."""
        return self._rows.take(numbers, columns)

    def read_rows(self, numbers: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """The same as Python values; for few rows this takes a fifth of the time."""
        return self._rows.read(numbers, columns)

    def read_chunks(self, ordinals: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        return self._chunks.read(ordinals, columns)


class _Batches:
    """An Arrow file, mapped. Few rows are taken from their batches: `Table.take` joins all of them first (8 ms)."""

    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as reader:
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            self.table = pa.Table.from_batches(batches, reader.schema)
        self._batches = batches
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._firsts: list[int] = self._starts.tolist()
        self._arrays = [dict(zip(batch.schema.names, batch.columns, strict=True)) for batch in batches]

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Value by value: nothing is selected, taken and joined first (25 µs for ten rows instead of 140)."""
        found = []
        for number in numbers:
            if not 0 <= number < self._firsts[-1]:
                raise IndexError(f"there are {self._firsts[-1]} rows")
            # Not numpy's search: it lets go of the interpreter, and a reader among many waits to get it back.
            home = bisect_right(self._firsts, number) - 1
            at, arrays = number - self._firsts[home], self._arrays[home]
            found.append({name: arrays[name][at].as_py() for name in columns})
        return found

    def take(self, numbers: Sequence[int], columns: Sequence[str] | None) -> pa.Table:
        schema = (
            self.table.schema if columns is None else pa.schema([self.table.schema.field(name) for name in columns])
        )
        wanted = np.asarray(numbers, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self._starts[-1]):
            raise IndexError(f"there are {self._starts[-1]} rows")
        homes = np.searchsorted(self._starts, wanted, side="right") - 1
        batches = {home: self._batches[home].select(schema.names) for home in {*homes.tolist()}}
        if len(batches) == 1:
            (home,) = batches
            return pa.Table.from_batches([batches[home].take(pa.array(wanted - self._starts[home]))], schema)
        places = zip(homes.tolist(), (wanted - self._starts[homes]).tolist(), strict=True)
        found = [batches[home].slice(at, 1) for home, at in places]
        return pa.Table.from_batches([pa.concat_batches(found)] if found else [], schema)


def mapped(path: Path) -> Vectors:
    """One row for each ordinal."""
    vectors: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    return vectors


def write_contents(source: ArtifactSource, folder: Path) -> Counts:
    """Write the three files, or raise `BuildRefused` with what does not fit."""
    with ThreadPoolExecutor(1) as writers:
        writing = writers.submit(_write_vectors, folder / VECTORS, source)
        rows = _write_batches(folder / ROWS, source.schema, source.rows)
        chunks, documents = _write_chunks(folder / CHUNKS, source.chunks, rows)
        vectors = writing.result()
    counts = Counts(rows, documents, chunks, vectors, source.quarantined)
    if source.model is not None and chunks != vectors + source.quarantined:
        raise BuildRefused(
            f"{source.table} has {chunks} chunks, {vectors} vectors and {source.quarantined} chunks in quarantine: "
            f"{chunks - vectors - source.quarantined} chunks have no vector",
            code="vectors_missing",
            hint="embed the table first",
        )
    return counts


def _write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    written = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in _joined(schema, batches):
            writer.write_batch(batch)
            written += batch.num_rows
    return written


def _joined(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a good size: each one costs a look when rows are taken."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.schema.equals(schema):
            raise BuildRefused(f"a batch has the columns {batch.schema.names} and not {schema.names}")
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from pa.Table.from_batches(waiting, schema).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    yield from pa.Table.from_batches(waiting, schema).combine_chunks().to_batches()


def _write_chunks(path: Path, batches: Iterable[pa.RecordBatch], rows: int) -> tuple[int, int]:
    """Returns how many chunks there are, and of how many documents."""
    seen: npt.NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)

    def checked() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            documents = batch.column("document")
            span = pc.min_max(documents)
            if documents.null_count or (len(documents) and not 0 <= span["min"].as_py() <= span["max"].as_py() < rows):
                raise BuildRefused(f"a chunk names a document that is none of the {rows} rows", code="chunk_of_no_row")
            seen[documents.to_numpy()] = True
            yield batch

    return _write_batches(path, CHUNK_SCHEMA, checked()), int(seen.sum())


def _write_vectors(path: Path, source: ArtifactSource) -> int:
    """Normalise and write, block by block."""
    dims = source.model.dims if source.model else 0
    written = 0
    with path.open("wb") as file:
        start = _write_header(file, 0, dims)
        for block in source.vectors:
            if block.ndim != 2 or block.shape[1] != dims:
                raise BuildRefused(
                    f"the vectors have the shape {block.shape}, and the model has {dims} dimensions", code="bad_vector"
                )
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
            bad = ~((lengths > _SHORTEST) & (lengths < _LONGEST))
            if bad.any():
                ordinal = written + int(np.argmax(bad))
                raise BuildRefused(f"the vector of chunk {ordinal} has no direction", code="bad_vector")
            straight = np.abs(lengths - 1.0).max(initial=0.0) <= _IS_ONE
            units = block if straight else block / lengths[:, None].astype(np.float32)
            file.write(np.ascontiguousarray(units, dtype="<f4").data)
            written += len(block)
        file.seek(0)
        assert _write_header(file, written, dims) == start, "NumPy leaves room in it for any number of rows"
    return written


def _write_header(file: BinaryIO, rows: int, dims: int) -> int:
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dims)}
    np.lib.format.write_array_header_2_0(file, header)
    return file.tell()
