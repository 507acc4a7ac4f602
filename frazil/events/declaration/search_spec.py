"""Search spec of a table: the model that embeds its text, how long texts are cut, and vectors that users bring.

`"text": ["title", "body"], "search": {"model": "wordllama", "chunk": {"size": 800, "overlap": 100, "by": "sentence"}}`
or, for vectors of one's own, `"search": {"vector": "embedding"}` with a column of type list<float> or list<double>.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args

from frazil.errors import InvalidInput
from frazil.events.declaration.column_types import ColumnType

By = Literal["heading", "sentence", "none"]
DEFAULT_MODEL = "wordllama"
MODEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
MIN_SIZE, MAX_SIZE = 50, 20_000


@dataclass(frozen=True)
class Chunking:
    """How a text becomes chunks: at most `size` characters each, sharing at most `overlap` with the one before.

    Characters, not tokens: chunks are the same for every model of a table, and can be cut without loading one.
    """

    size: int = 800
    overlap: int = 100
    by: By = "sentence"

    def declared(self) -> dict[str, Any]:
        return {"size": self.size, "overlap": self.overlap, "by": self.by}


@dataclass(frozen=True)
class SearchSpec:
    """What was declared as `search`, or its defaults."""

    model: str = DEFAULT_MODEL
    chunk: Chunking = Chunking()
    vector: str | None = None
    """The column that holds the user's own vectors."""

    def declared(self) -> dict[str, Any]:
        """The JSON that declares this; `parse_search` of it gives it again."""
        return {"model": self.model, "chunk": self.chunk.declared(), "vector": self.vector}


def parse_search(declared: Any) -> SearchSpec | None:
    """The declaration of search, each value checked by itself; `check_search` holds it against the table."""
    if declared is None:
        return None
    words = _object(declared, ("model", "chunk", "vector"), "search")
    model = DEFAULT_MODEL if words.get("model") is None else words["model"]
    if not isinstance(model, str) or not MODEL_NAME.match(model):
        raise _bad(
            f"{str(model)[:80]!r} is not the name of a model",
            "use a-z, 0-9, _ and -, beginning with a letter: wordllama, or a name below [models.<name>]",
        )
    vector = words.get("vector")
    if vector is not None and not isinstance(vector, str):
        raise _bad("`vector` is the name of a column", 'for example "vector": "embedding"')
    return SearchSpec(model=model, chunk=_chunking(words.get("chunk")), vector=vector)


def check_search(search: SearchSpec | None, text: Sequence[str], columns: Mapping[str, ColumnType]) -> None:
    """Refuse a table whose columns cannot be searched as it says."""
    for name in text:
        if columns[name].kind != "string":
            raise _bad(f"`text` names {name!r}, which is {columns[name]}", "text to search is in string columns")
    if len(set(text)) != len(text):
        raise _bad("`text` names a column twice", "name each column once")
    if search is None:
        return
    if search.vector is not None:
        of_type = columns.get(search.vector)
        if of_type is None:
            raise _bad(f"`vector` names {search.vector!r}, which is not a column", "declare it as list<float>")
        if str(of_type) not in ("list<float>", "list<double>"):
            raise _bad(f"`vector` names {search.vector!r}, which is {of_type}", "declare it as list<float>")
    elif not text:
        raise _bad("there is nothing to search", 'name columns of text, as in "text": ["body"], or a `vector`')


def _chunking(declared: Any) -> Chunking:
    words = {} if declared is None else _object(declared, ("size", "overlap", "by"), "chunk")
    size = _count(words, "size", Chunking.size)
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise _bad(f"a chunk of {size} characters", f"its size is {MIN_SIZE} to {MAX_SIZE:,} characters")
    # A smaller chunk shares less by itself; only what was asked for is refused.
    overlap = _count(words, "overlap", min(Chunking.overlap, size // 8))
    if not 0 <= overlap <= size // 2:
        raise _bad(f"an overlap of {overlap} characters", f"it is 0 to half of the size, here {size // 2}")
    by = Chunking.by if words.get("by") is None else words["by"]
    if by not in get_args(By):
        raise _bad(f"chunks by {str(by)[:40]!r}", "by is heading, sentence or none")
    return Chunking(size=size, overlap=overlap, by=by)


def _object(declared: Any, known: tuple[str, ...], what: str) -> Mapping[str, Any]:
    if not isinstance(declared, Mapping):
        raise _bad(f"`{what}` is an object", f"its fields are {', '.join(known)}")
    for name in declared:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            raise _bad(
                f"`{what}` has no field {str(name)[:80]!r}",
                f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(known)}",
            )
    return declared


def _count(words: Mapping[str, Any], name: str, default: int) -> int:
    value = words.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"`{name}` of a chunk is a whole number of characters", f'for example "{name}": {default}')
    return value


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_search", hint=hint)
