"""Embedded chunks: the keys of the chunks that have a vector already, as a task sees them.

The keys of a file never change, so a worker process reads each file once and keeps its keys: 16 bytes for the chunk, 16
for its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.embedding import Floats, Ints, SortedKeys, as_matrix, keys_of_chunks
from frazil.events import Keys, id_keys
from frazil.lake.bulk import FilePlan, FileRange, read_range, read_rows

_COLUMNS = pa.schema(
    [("document", pa.string()), ("chunk", pa.int32()), ("hash", pa.string()), ("version", pa.string())]
)


@dataclass(frozen=True)
class KnownFiles:
    """Where the vectors and the refusals of one model are, in the snapshots that a run goes by."""

    vectors: FilePlan
    refused: FilePlan
    vector_files: tuple[FileRange, ...]
    refused_files: tuple[FileRange, ...]
    version: str
    is_rewrite: bool = False
    """All chunks are written again, those that have a vector with that vector."""


@dataclass(frozen=True)
class _FileKeys:
    """Of the rows of one file that are of the wanted version."""

    chunks: Keys
    contents: Keys
    rows: Ints


class EmbeddedChunks:
    """The chunks that need no model any more."""

    def __init__(self, files: KnownFiles) -> None:
        self._files = files
        vectors = [_keys(files.vectors, file, files.version) for file in files.vector_files]
        refused = [_keys(files.refused, file, files.version) for file in files.refused_files]
        _forget_all_but(files)
        self._chunks = SortedKeys(_joined([keys.chunks for keys in (*vectors, *refused)]))
        self._contents = SortedKeys(_joined([keys.contents for keys in vectors]))
        self._rows = np.concatenate([np.empty(0, np.int64), *(keys.rows for keys in vectors)])
        self._file_of = np.repeat(np.arange(len(vectors)), [len(keys.rows) for keys in vectors])

    def has(self, chunks: Keys) -> npt.NDArray[np.bool_]:
        """Which of these chunks have a vector, or are known to get none."""
        if self._files.is_rewrite:
            return np.zeros(len(chunks), bool)
        return self._chunks.find(chunks) >= 0

    def vectors(self, contents: Keys, dims: int) -> tuple[Ints, Floats]:
        """Which of these contents have a vector, under whatever document, and those vectors."""
        at = self._contents.find(contents)
        found = np.flatnonzero(at >= 0)
        vectors = np.empty((len(found), dims), np.float32)
        files = self._file_of[at[found]]
        for file in np.unique(files).tolist():
            of_file = np.flatnonzero(files == file)
            rows, back = np.unique(self._rows[at[found[of_file]]], return_inverse=True)
            stored = read_rows(self._files.vectors, self._files.vector_files[file].path, rows, "vector")
            vectors[of_file] = as_matrix(stored, dims)[back]
        return found, vectors


_read: dict[tuple[str, str], _FileKeys] = {}


def _keys(plan: FilePlan, file: FileRange, version: str) -> _FileKeys:
    if (file.path, version) not in _read:
        chunks, contents, rows = [], [], []
        at = 0
        for part in read_range(plan, file, _COLUMNS):
            is_wanted = pc.equal(part["version"], version)
            wanted = part.filter(is_wanted).combine_chunks()
            if wanted.num_rows:
                document, chunk, content = (_array(wanted[name]) for name in ("document", "chunk", "hash"))
                chunks.append(keys_of_chunks(document, chunk, content))
                contents.append(id_keys(content))
                rows.append(at + np.flatnonzero(is_wanted.to_numpy()))
            at += part.num_rows
        none = np.empty(0, np.int64)
        _read[file.path, version] = _FileKeys(_joined(chunks), _joined(contents), np.concatenate([none, *rows]))
    return _read[file.path, version]


def _forget_all_but(files: KnownFiles) -> None:
    needed = {(file.path, files.version) for file in (*files.vector_files, *files.refused_files)}
    for other in _read.keys() - needed:
        del _read[other]


def _joined(keys: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty((0, 2), np.uint64), *keys])


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
