"""Searchable: a table as the search engine knows it, from rows to documents, texts and pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.embedding import Chunk, Model, RawVectors, checked, chunked, document_text, embedded
from frazil.events.declaration import Chunking
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.text.analysis import DEFAULT_LANGUAGE
from frazil.serving.text.layout import TextLayout

Key = tuple[Any, ...]
"""The values of a document's key columns."""


@dataclass(frozen=True)
class Pieces:
    """The chunks of a document; `vectors[i]` is that of the chunk `of[i]`. Those in quarantine have none."""

    chunks: tuple[Chunk, ...]
    of: tuple[int, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Searchable:
    """One table, as far as a search must know it. Without a model it is searched by words alone."""

    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    """`("_id",)` for a log, the key columns for an entity."""
    text: tuple[str, ...] = ()
    model: Model | None = None
    chunk: Chunking = field(default_factory=Chunking)
    vector: str | None = None
    """The column with the user's own vectors."""
    language: str = DEFAULT_LANGUAGE

    @property
    def layout(self) -> TextLayout | None:
        return TextLayout(self.text, self.language) if self.text else None

    def key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[column] for column in self.key)

    def in_pieces(self, rows: Sequence[Mapping[str, Any]]) -> list[Pieces]:
        """Cut and embed these rows, as a build would. Raises `Unavailable` when the model does not answer."""
        dims = self.model.dims if self.model is not None else 0
        if self.vector is not None:
            return [self._own(row, self.vector, dims) for row in rows]
        cut = [chunked(document_text(row.get(column) for column in self.text), self.chunk) for row in rows]
        if self.model is None:
            return [Pieces(chunks, (), np.empty((0, 0), np.float32)) for chunks in cut]
        outcome = embedded(self.model, [chunk.passage for chunks in cut for chunk in chunks])
        found: list[Pieces] = []
        first = 0
        for chunks in cut:
            here = np.flatnonzero((outcome.of >= first) & (outcome.of < first + len(chunks)))
            found.append(Pieces(chunks, tuple((outcome.of[here] - first).tolist()), outcome.vectors[here]))
            first += len(chunks)
        return found

    def _own(self, row: Mapping[str, Any], column: str, dims: int) -> Pieces:
        """The vector that came with the row, for all of its text."""
        text = document_text(row.get(column) for column in self.text)
        if row.get(column) is None:
            return Pieces((), (), np.empty((0, dims), np.float32))
        outcome = checked(RawVectors(np.atleast_2d(np.asarray(row[column], dtype=np.float32))), 1, dims)
        return Pieces((Chunk(0, 0, len(text), text),), tuple(outcome.of.tolist()), outcome.vectors)
