"""Chunk columns: the rows of a searched table as documents, and the documents as chunks.

The job that embeds a table, the builder of an artifact and the fresh tail of a search cut the same chunks of the same
rows, so that a chunk finds its vector by document, number and hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.embedding.chunks import chunked, content_hash, document_text
from frazil.events.declaration import SearchSpec, TableSpec

OWN = "own"
"""The name of the model of vectors that users bring."""
OWN_VERSION = "1"
Brought = npt.NDArray[np.float64]
"""A vector that came with its row. What is null in it is no number, as NaN is none."""
_CUT_AGAIN = "1"
"""Another one when the same text would be cut into other chunks."""


@dataclass
class ChunkColumns:
    """The chunks of some rows, as columns of equal length; `passage` is what is embedded."""

    rows: int = 0
    row: list[int] = field(default_factory=list)
    """The place among these rows of the one that it was cut from: two of them may have the same name."""
    document: list[str] = field(default_factory=list)
    chunk: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    passage: list[str] = field(default_factory=list)
    hash: list[str] = field(default_factory=list)
    position: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.document)


def recipe_of(spec: TableSpec, model: str) -> str:
    """Equal as long as the same rows of the table give the same chunks for this model."""
    search = _searched(spec)
    words = [_CUT_AGAIN, search.vector] if model == OWN else [_CUT_AGAIN, spec.text, search.chunk.declared()]
    return blake2b(msgspec.json.encode(words), digest_size=8).hexdigest()


def document_columns(spec: TableSpec, model: str) -> list[str]:
    """What must be read of a row to know its document."""
    search = _searched(spec)
    vector = [search.vector] if model == OWN and search.vector else []
    return list(dict.fromkeys(["_seq", "_id", "_op", *spec.key, *spec.text, *vector]))


def document_ids(spec: TableSpec, rows: pa.Table) -> list[str]:
    """The name of each row's document: its `_id`, or of an entity its key as JSON, the columns in the key's order."""
    if spec.kind != "entity":
        return [str(name) for name in rows["_id"].to_pylist()]
    keys = zip(*(rows[name].to_pylist() for name in spec.key), strict=True)
    return [msgspec.json.encode(dict(zip(spec.key, key, strict=True))).decode() for key in keys]


def without_deleted(rows: pa.Table) -> pa.Table:
    """The rows without those that delete a key."""
    ops = rows["_op"].to_pylist()
    return rows.filter(pa.array([op != "delete" for op in ops])) if "delete" in ops else rows


def cut_rows(spec: TableSpec, rows: pa.Table) -> ChunkColumns:
    """The chunks of the rows, document by document. A row without text has none."""
    found = ChunkColumns(rows.num_rows)
    chunking = _searched(spec).chunk
    for row, (name, position, text) in enumerate(_documents(spec, rows)):
        for chunk in chunked(text, chunking):
            _add(found, row, name, chunk.number, chunk.start, chunk.end, chunk.text, chunk.passage, position)
            found.hash.append(content_hash(chunk.passage))
    return found


def user_vector_chunks(spec: TableSpec, rows: pa.Table) -> tuple[ChunkColumns, list[Brought | None]]:
    """The rows as documents of one chunk each, and the vectors that came with them. The hash is the vector's."""
    vectors = _brought(rows[_searched(spec).vector or ""])
    found = ChunkColumns(rows.num_rows)
    for row, (name, position, text) in enumerate(_documents(spec, rows)):
        _add(found, row, name, 0, 0, len(text), text, "", position)
    found.hash = [_vector_hash(vector) for vector in vectors]
    return found, vectors


def _documents(spec: TableSpec, rows: pa.Table) -> Iterable[tuple[str, int, str]]:
    """The name, position and text of each row."""
    return zip(document_ids(spec, rows), rows["_seq"].to_pylist(), _texts(spec, rows), strict=True)


def _add(
    found: ChunkColumns,
    row: int,
    document: str,
    chunk: int,
    start: int,
    end: int,
    text: str,
    passage: str,
    position: int,
) -> None:
    found.row.append(row)
    found.document.append(document)
    found.chunk.append(chunk)
    found.start.append(start)
    found.end.append(end)
    found.text.append(text)
    found.passage.append(passage)
    found.position.append(position)


def _texts(spec: TableSpec, rows: pa.Table) -> Iterable[str]:
    if not spec.text:
        return [""] * rows.num_rows
    columns = [rows[name].to_pylist() for name in spec.text]
    return [document_text(values) for values in zip(*columns, strict=True)]


def _brought(column: pa.ChunkedArray) -> list[Brought | None]:
    """The vector of each row; not by way of Python's numbers, which takes ten times as long."""
    vectors: list[Brought | None] = []
    for chunk in column.chunks:
        lengths = pc.list_value_length(chunk).to_pylist()
        numbers = chunk.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        ends = np.cumsum([length or 0 for length in lengths])
        for length, end in zip(lengths, ends.tolist(), strict=True):
            vectors.append(None if length is None else numbers[end - length : end])
    return vectors


def _vector_hash(vector: Brought | None) -> str:
    return blake2b(b"" if vector is None else vector.data, digest_size=16).hexdigest()


def _searched(spec: TableSpec) -> SearchSpec:
    assert spec.searched is not None, "only of tables that are searched"
    return spec.searched
