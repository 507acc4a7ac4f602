"""Search declaration of a table: the model that embeds its text, the length of chunks, and vectors that users bring.

`"text": ["title", "body"], "search": {"model": "wordllama", "chunk": {"size": 800, "overlap": 100, "by": "sentence"}}`
or, for vectors of one's own, `"search": {"vector": "embedding"}` with a column of type list<float> or list<double>.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frazil.errors import InvalidInput
from frazil.events.declaration.column_types import ColumnType

ChunkBoundary = Literal["heading", "sentence", "none"]
DEFAULT_MODEL = "wordllama"
MODEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
MIN_CHUNK_SIZE, MAX_CHUNK_SIZE = 50, 20_000


@dataclass(frozen=True)
class Chunking:
    """Chunks of a text: at most `size` characters each, sharing at most `overlap` with the one before.

    Characters, not tokens: chunks are the same for every model of a table, and can be cut without loading one.
    """

    size: int = 800
    overlap: int = 100
    by: ChunkBoundary = "sentence"

    def declared(self) -> dict[str, Any]:
        return {"size": self.size, "overlap": self.overlap, "by": self.by}


@dataclass(frozen=True)
class SearchSpec:
    """The declared `search` of a table, or its defaults."""

    model: str = DEFAULT_MODEL
    chunk: Chunking = Chunking()
    vector: str | None = None
    """The column that holds the user's own vectors."""

    def declared(self) -> dict[str, Any]:
        """The JSON that declares this; `parse_search` of it gives it again."""
        return {"model": self.model, "chunk": self.chunk.declared(), "vector": self.vector}


def parse_search(declared: Mapping[str, Any] | None) -> SearchSpec | None:
    """The declaration of search; `check_search` compares it with the columns of the table."""
    if declared is None:
        return None
    model = declared.get("model")
    return SearchSpec(
        model=DEFAULT_MODEL if model is None else model,
        chunk=_chunking(declared.get("chunk") or {}),
        vector=declared.get("vector"),
    )


def check_search(search: SearchSpec | None, text: Sequence[str], columns: Mapping[str, ColumnType]) -> None:
    """Refuse a table whose columns cannot be searched as declared."""
    for name in text:
        if columns[name].kind != "string":
            raise _bad(f"`text` names {name!r}, which is {columns[name]}", "use string columns for `text`")
    if len(set(text)) != len(text):
        raise _bad("`text` names a column twice", "name each column only once")
    if search is None:
        return
    if search.vector is not None:
        of_type = columns.get(search.vector)
        if of_type is None:
            raise _bad(f"`vector` names {search.vector!r}, which is not a column", "declare it as list<float>")
        if str(of_type) not in ("list<float>", "list<double>"):
            raise _bad(f"`vector` names {search.vector!r}, which is {of_type}", "declare it as list<float>")
    elif not text:
        raise _bad(
            "`search` needs `text` or `vector`",
            'name string columns, for example "text": ["body"], or a `vector` column',
        )


def _chunking(declared: Mapping[str, Any]) -> Chunking:
    size = _or_default(declared.get("size"), Chunking.size)
    # A smaller chunk shares less by itself; only a declared overlap is refused.
    overlap = _or_default(declared.get("overlap"), min(Chunking.overlap, size // 8))
    if overlap > size // 2:
        raise _bad(
            f"the overlap of {overlap} characters is too large",
            f"use 0 to {size // 2} characters, half of the chunk size",
        )
    return Chunking(size=size, overlap=overlap, by=declared.get("by") or Chunking.by)


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_search", hint=hint)
