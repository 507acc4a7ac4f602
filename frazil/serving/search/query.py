"""Search query: what a search looks for, what it may see, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from frazil.embedding import Chunk, unit
from frazil.errors import InvalidInput
from frazil.requests import Mode
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.bitmap import Bitmap
from frazil.serving.search.searchable import Key
from frazil.serving.text.snippet import TextSnippet

MAX_REACH = 10_000
"""How far down a ranking one may look: `offset` + `k`."""
_IS_ONE = 1e-6


@dataclass(frozen=True)
class SearchQuery:
    """One query of the engine. `InvalidInput` if its fields contradict each other."""

    text: str | None = None
    vector: Vectors | None = None
    """Instead of the text's own; any length but zero."""
    mode: Mode = "hybrid"
    k: int = 10
    offset: int = 0
    min_score: float | None = None
    """Of the answer's own score: a cosine, a BM25 sum, or in hybrid mode a sum of reciprocal ranks."""
    vector_weight: float = 1.0
    text_weight: float = 1.0
    fields: Mapping[str, float] | None = None
    """The text columns that words are looked for in, with their weights; others cannot be named in the text either."""
    columns: tuple[str, ...] | None = None
    """Of the row; None means all."""
    by_document: bool = True
    """False: each chunk is a hit of its own (`vector` only)."""
    snippet_characters: int = 200
    """0: no snippet."""
    passages: bool = True
    """Whether a hit found by its vector shows the chunk."""

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= MAX_REACH - self.k:
            raise _wrong(
                f"offset = {self.offset} is not from 0 to {MAX_REACH - self.k}", "narrow the search by a filter"
            )
        if self.text is None and (self.vector is None or self.mode != "vector"):
            raise _wrong(f"a search of mode {self.mode} needs a text", "give `query`")
        if not self.by_document and self.mode != "vector":
            raise _wrong("single chunks are found by vector only", 'use mode "vector", or group by document')
        if self.vector is not None:
            object.__setattr__(self, "vector", _direction(self.vector))

    @property
    def reach(self) -> int:
        return self.offset + self.k


@dataclass(frozen=True)
class Allowed:
    """The documents that may be in the answer, judged elsewhere on the same generation and view. None: all."""

    rows: Bitmap | None = None
    """Of the generation's rows."""
    fresh: Bitmap | None = None
    """Of the view's `rows`."""


class Hit(NamedTuple):
    key: Key
    score: float
    row: Mapping[str, Any]
    fresh: bool
    vector_score: float | None = None
    text_score: float | None = None
    chunk: Chunk | None = None
    """The chunk that is nearest, if it was found by vector."""
    snippet: TextSnippet | None = None
    snippet_column: str = ""
    """Where the snippet is from; empty: from the chunk."""


@dataclass(frozen=True)
class SearchResult:
    """The hits, best first, and the one state that all of them are from."""

    hits: tuple[Hit, ...]
    generation: str | None
    snapshot_id: int | None
    position: int
    """Every change below it was taken into account."""
    fresh_searched: int
    """Documents newer than the generation that were searched."""
    ignored: tuple[str, ...] = field(default=())
    """What of the text could not be read, in plain words."""


def _direction(vector: Vectors) -> Vectors:
    row = np.asarray(vector, dtype=np.float32).reshape(-1)
    # Most come with length 1 as they are; a number that is not finite would show here too.
    with np.errstate(over="ignore"):  # of numbers above 1e19 the square is infinite, and so not 1
        is_unit = abs(float(row @ row) - 1) <= _IS_ONE
    if is_unit:
        return row
    if not len(row) or not np.isfinite(row).all() or not row.any():
        raise InvalidInput(
            "the query vector has no direction", code="bad_vector", hint="finite numbers, not all of them zero"
        )
    direction: Vectors = unit(row.reshape(1, -1))[0]
    return direction


def _wrong(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_search", hint=hint)
