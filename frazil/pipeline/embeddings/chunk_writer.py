"""Chunk writer: chunks with a vector go to files of one table, chunks without to files of another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.embedding import ChunkColumns, Floats
from frazil.events.declaration import TIMESTAMP
from frazil.lake.bulk import FileWriter, WrittenFile
from frazil.pipeline.embeddings.embedded_chunks import KnownFiles
from frazil.pipeline.embeddings.recipe import Recipe


@dataclass(frozen=True)
class ChunkRefusal:
    """A chunk, by its place in the cut, and why it has no vector."""

    place: int
    code: str
    reason: str


class ChunkWriter:
    """Used as a context: leaving it by an error takes away what was begun."""

    def __init__(self, recipe: Recipe, known: KnownFiles) -> None:
        self._recipe = recipe
        self._vectors, self._refused = FileWriter(known.vectors), FileWriter(known.refused)
        self._content, self._refused_content = blake2b(digest_size=16), blake2b(digest_size=16)
        self._both = ExitStack()

    def __enter__(self) -> ChunkWriter:
        self._both.enter_context(self._vectors)
        self._both.enter_context(self._refused)
        return self

    def __exit__(self, *error: Any) -> None:
        self._both.__exit__(*error)

    @property
    def files(self) -> list[WrittenFile]:
        return self._vectors.written

    @property
    def refused_files(self) -> list[WrittenFile]:
        return self._refused.written

    @property
    def content(self) -> str:
        """A hash of which chunks have got a vector, in their order."""
        return self._content.hexdigest()

    @property
    def refused_content(self) -> str:
        return self._refused_content.hexdigest()

    def write(self, found: ChunkColumns, places: Sequence[int], vectors: Floats) -> None:
        """The chunks at these places of the cut, with a vector each."""
        if not places:
            return
        count, dims = vectors.shape
        offsets = pa.array(np.arange(0, (count + 1) * dims, dims, dtype=np.int32))
        more = {
            "dims": pa.repeat(pa.scalar(dims, pa.int32()), count),
            "vector": pa.ListArray.from_arrays(offsets, pa.array(vectors.reshape(-1))),
            "embedded_at": self._at(count),
        }
        self._vectors.write(pa.table(self._chunks(found, places) | more))
        for place in places:
            self._content.update(_name(found, place))

    def refuse(self, found: ChunkColumns, refusals: Sequence[ChunkRefusal]) -> None:
        """The chunks that have no vector, with the reason of each."""
        if not refusals:
            return
        more = {
            "code": pa.array([refusal.code for refusal in refusals]),
            "reason": pa.array([refusal.reason for refusal in refusals]),
            "failed_at": self._at(len(refusals)),
        }
        self._refused.write(pa.table(self._chunks(found, [refusal.place for refusal in refusals]) | more))
        for refusal in refusals:
            self._refused_content.update(_name(found, refusal.place))

    def _chunks(self, found: ChunkColumns, places: Sequence[int]) -> dict[str, pa.Array]:
        def of(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
            return pa.array([column[place] for place in places], kind)

        return {
            "document": of(found.document, pa.string()),
            "chunk": of(found.chunk, pa.int32()),
            "start": of(found.start, pa.int32()),
            "end": of(found.end, pa.int32()),
            "text": of(found.text, pa.string()),
            "hash": of(found.hash, pa.string()),
            "model": pa.repeat(pa.scalar(self._recipe.name), len(places)),
            "version": pa.repeat(pa.scalar(self._recipe.version), len(places)),
            "position": of(found.position, pa.int64()),
        }

    def _at(self, count: int) -> pa.Array:
        return pa.repeat(pa.scalar(self._recipe.at, TIMESTAMP), count)


def _name(found: ChunkColumns, place: int) -> bytes:
    return f"{found.hash[place]}:{found.chunk[place]}:{found.document[place]}\0".encode("utf-8", "surrogatepass")
