"""The searching half of a client: hits by words, by vector or by both, at a stated freshness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.client.sql import Queries
from frazil.client.transport import not_frazil
from frazil.requests import DEFAULT_FRESHNESS, DEFAULT_TIMEOUT_S, Freshness, Group, Mode, WhenBehind

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Snippet:
    """A part of the text, and where in it the words stand that were asked for."""

    text: str
    marks: tuple[tuple[int, int], ...]
    column: str | None = None
    start: int = 0

    def marked(self, before: str = "**", after: str = "**") -> str:
        """The text with the words that were asked for between these."""
        parts, at = [], 0
        for begin, end in self.marks:
            parts += [self.text[at:begin], before, self.text[begin:end], after]
            at = end
        return "".join([*parts, self.text[at:]])


@dataclass(frozen=True)
class SearchHit:
    id: Any
    """Of a log the event's id; of an entity its key, a list where that has several columns."""
    score: float
    row: Mapping[str, Any]
    """Values as JSON answers to SQL have them."""
    fresh: bool
    """Whether it is newer than the generation."""
    vector_score: float | None = None
    text_score: float | None = None
    key: Mapping[str, Any] | None = None
    chunk: Mapping[str, Any] | None = None
    """`number`, `start`, `end` and `text` of the piece that is nearest."""
    snippet: Snippet | None = None


@dataclass(frozen=True)
class SearchAnswer:
    """The hits, best first, and the one state that all of them are from."""

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
    """The whole answer as it came."""

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


class Searching(Queries):
    def search(
        self,
        table: str | None = None,
        query: str | None = None,
        *,
        profile: str | None = None,
        vector: Sequence[float] | None = None,
        mode: Mode | None = None,
        k: int | None = None,
        offset: int | None = None,
        min_score: float | None = None,
        weights: Mapping[str, float] | None = None,
        fields: Sequence[str] | Mapping[str, float] | None = None,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        group: Group | None = None,
        snippet: bool | int | None = None,
        freshness: Freshness = DEFAULT_FRESHNESS,
        min_token: str | None = None,
        timeout_s: float | None = None,
        when_behind: WhenBehind | None = None,
    ) -> SearchAnswer:
        """Search a table, or by a profile, for words, a vector (a list or an array of numbers), or both.

        `filter` is a condition in SQL over the table's columns. `live` finds every event that had its receipt before;
        `min_token` is the token of a receipt or of an answer: what it stands for is included, or waited for.
        """
        asked = {
            "table": table,
            "profile": profile,
            "query": query,
            "vector": None if vector is None else [float(number) for number in vector],
            "mode": mode,
            "k": k,
            "offset": offset,
            "min_score": min_score,
            "weights": None if weights is None else dict(weights),
            "fields": dict(fields) if isinstance(fields, Mapping) else None if fields is None else list(fields),
            "filter": filter,
            "columns": None if columns is None else list(columns),
            "group": group,
            "snippet": snippet,
            "freshness": freshness,
            "min_token": self._since(min_token),
            "timeout_s": timeout_s,
            "when_behind": when_behind,
        }
        facts = self._call(
            "POST",
            "/v1/search",
            json_body={word: value for word, value in asked.items() if value is not None},
            timeout_s=(timeout_s or DEFAULT_TIMEOUT_S) + _PATIENCE_S,
        )
        try:
            answer = _answer(facts)
        except (KeyError, TypeError, ValueError) as error:
            raise not_frazil("/v1/search") from error
        self._saw(answer.token)
        return answer


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


def _hit(told: Mapping[str, Any]) -> SearchHit:
    shown = told.get("snippet")
    return SearchHit(
        id=told["id"],
        score=float(told["score"]),
        row=told["row"],
        fresh=bool(told["fresh"]),
        vector_score=told["vector_score"],
        text_score=told["text_score"],
        key=told.get("key"),
        chunk=told.get("chunk"),
        snippet=None
        if shown is None
        else Snippet(
            shown["text"], tuple((begin, end) for begin, end in shown["marks"]), shown["column"], shown["start"]
        ),
    )
