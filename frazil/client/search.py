"""Search: the body of a search request, and its answer with hits and snippets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.client.transport import JsonObject, given, not_frazil


@dataclass(frozen=True)
class Snippet:
    """A part of the text, and the places of the query words in it."""

    text: str
    marks: tuple[tuple[int, int], ...]
    column: str | None = None
    start: int = 0

    def marked(self, before: str = "**", after: str = "**") -> str:
        """The text, with each query word between `before` and `after`."""
        parts, at = [], 0
        for begin, end in self.marks:
            parts += [self.text[at:begin], before, self.text[begin:end], after]
            at = end
        return "".join([*parts, self.text[at:]])


@dataclass(frozen=True)
class SearchHit:
    id: Any
    """For a log the id of the event; for an entity its key, a list if it has several columns."""
    score: float
    row: Mapping[str, Any]
    """Values as in JSON answers to SQL."""
    fresh: bool
    """Whether it is newer than the generation."""
    vector_score: float | None = None
    text_score: float | None = None
    key: Mapping[str, Any] | None = None
    chunk: Mapping[str, Any] | None = None
    """`number`, `start`, `end` and `text` of the nearest chunk."""
    snippet: Snippet | None = None


@dataclass(frozen=True)
class SearchAnswer:
    """The hits, best first, and the state of the table that all of them are from."""

    hits: tuple[SearchHit, ...]
    generation: str | None
    snapshot_id: int | None
    token: str
    mode: str
    freshness: str
    fresh_rows: int
    elapsed_ms: float
    ignored: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole answer of the server."""

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


def search_body(
    *,
    vector: Sequence[float] | None,
    weights: Mapping[str, float] | None,
    fields: Sequence[str] | Mapping[str, float] | None,
    columns: Sequence[str] | None,
    **others: Any,
) -> JsonObject:
    """The body of a search request; arrays and other sequences become lists."""
    return given(
        vector=None if vector is None else [float(number) for number in vector],
        weights=None if weights is None else dict(weights),
        fields=dict(fields) if isinstance(fields, Mapping) else None if fields is None else list(fields),
        columns=None if columns is None else list(columns),
        **others,
    )


def read_search_answer(body: Mapping[str, Any], path: str) -> SearchAnswer:
    try:
        return _answer(body)
    except (KeyError, TypeError, ValueError) as error:
        raise not_frazil(path) from error


def _answer(facts: Mapping[str, Any]) -> SearchAnswer:
    return SearchAnswer(
        hits=tuple(_hit(hit) for hit in facts["hits"]),
        generation=facts["generation"],
        snapshot_id=facts["snapshot_id"],
        token=str(facts["token"]),
        mode=str(facts["mode"]),
        freshness=str(facts["freshness"]),
        fresh_rows=int(facts["fresh_rows"]),
        elapsed_ms=float(facts["elapsed_ms"]),
        ignored=tuple(facts["ignored"]),
        facts=facts,
    )


def _hit(body: Mapping[str, Any]) -> SearchHit:
    snippet = body.get("snippet")
    return SearchHit(
        id=body["id"],
        score=float(body["score"]),
        row=body["row"],
        fresh=bool(body["fresh"]),
        vector_score=body["vector_score"],
        text_score=body["text_score"],
        key=body.get("key"),
        chunk=body.get("chunk"),
        snippet=None
        if snippet is None
        else Snippet(
            snippet["text"], tuple((begin, end) for begin, end in snippet["marks"]), snippet["column"], snippet["start"]
        ),
    )
