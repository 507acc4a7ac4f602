"""Fresh slots: places of fresh documents, filled one after the other and never changed.

A view of the past is the number of slots that were filled then, and which of them counted. So a query needs no copy,
and a writer does not wait for queries.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from frazil.embedding import Chunk
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.search.searchable import Key, Pieces, Searchable
from frazil.serving.text.bm25 import Statistics
from frazil.serving.text.fresh_text import FreshText
from frazil.serving.text.query_syntax import TextQuery

_FIRST_ROOM = 64


@dataclass(frozen=True)
class FreshDocument:
    position: int
    key: Key
    row: Mapping[str, Any]
    pieces: Pieces

    @property
    def bytes(self) -> int:
        return self.pieces.vectors.nbytes + 4 * sum(len(chunk.text) for chunk in self.pieces.chunks)


class FreshSlots:
    """One thread adds, any number search."""

    def __init__(self, searchable: Searchable) -> None:
        layout, model = searchable.layout, searchable.model
        dims = 0 if model is None else model.dims
        self.schema = searchable.schema
        self.documents: list[FreshDocument] = []
        self.chunks: list[Chunk] = []
        """Those that have a vector."""
        self._vectors: Vectors = np.empty((_FIRST_ROOM, dims), np.float32)
        self._homes: Ordinals = np.empty(_FIRST_ROOM, np.int64)
        self._text = None if layout is None else FreshText(layout)
        # Searching words is Python, and holds the interpreter anyway: a lock costs searches nothing.
        self._reading_words = threading.Lock()

    def add(self, document: FreshDocument) -> int:
        slot = len(self.documents)
        first, added = len(self.chunks), len(document.pieces.of)
        self._make_room(first + added)
        self._vectors[first : first + added] = document.pieces.vectors
        self._homes[first : first + added] = slot
        if self._text is not None:
            with self._reading_words:
                self._text.add(slot, {column: document.row.get(column) for column in self._text.layout.columns})
        self.chunks.extend(document.pieces.chunks[at] for at in document.pieces.of)
        self.documents.append(document)
        return slot

    def vectors(self, count: int) -> Vectors:
        return self._vectors[:count]

    def homes(self, count: int) -> Ordinals:
        """The slot of each of the first chunks that have a vector."""
        return self._homes[:count]

    def search(
        self,
        query: TextQuery,
        k: int,
        *,
        allowed: Bitmap,
        like: Statistics | None,
        weights: Mapping[str, float] | None,
    ) -> tuple[npt.NDArray[np.float32], Ordinals]:
        """The best slots by words, ranked with the statistics of the generation."""
        if self._text is None:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        text = self._text if like is None else self._text.ranked_like(like)
        with self._reading_words:
            return text.search(query, k, allowed=allowed, weights=weights)

    def _make_room(self, needed: int) -> None:
        """Views keep the arrays they began with: what they see of them was written before."""
        if needed <= len(self._homes):
            return
        room = max(needed, 2 * len(self._homes))
        vectors = np.empty((room, self._vectors.shape[1]), np.float32)
        homes = np.empty(room, np.int64)
        vectors[: len(self.chunks)] = self._vectors[: len(self.chunks)]
        homes[: len(self.chunks)] = self._homes[: len(self.chunks)]
        self._vectors, self._homes = vectors, homes
