"""Hydration: hits with their rows, taken from the mapped files for the few that are answered, and copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from frazil.embedding import Chunk
from frazil.errors import InvalidInput
from frazil.serving.search.fresh_documents import FreshView
from frazil.serving.search.generation import Generation
from frazil.serving.search.query import Hit, SearchQuery
from frazil.serving.search.ranking import Ranked
from frazil.serving.search.searchable import Searchable
from frazil.serving.text.query_syntax import TextQuery, read_query
from frazil.serving.text.snippet import TextSnippet, best_snippet

_NO_WORDS = read_query("", ())
_CHUNK_COLUMNS = ("number", "start", "end", "text")


class HitPlace(NamedTuple):
    """Where a hit stands in the ranking by vector and in that by words."""

    near: int | None
    worded: int | None


class RankedHit(NamedTuple):
    number: int
    piece: int | None
    score: float
    vector_score: float | None
    text_score: float | None
    is_worded: bool


def hydrate(
    searchable: Searchable,
    view: FreshView,
    query: SearchQuery,
    words: TextQuery | None,
    best: Sequence[tuple[HitPlace, float]],
    by_vector: Ranked,
    by_text: Ranked,
) -> tuple[Hit, ...]:
    columns = _columns(searchable, query)
    found = _found(view, query, best, by_vector, by_text)
    chunks = _chunks(view, [one.piece for one in found if one.piece is not None]) if query.passages else {}
    shown_from = searchable.text if query.snippet_characters and query.mode != "vector" else ()
    rows = _rows(searchable, view, [one.number for one in found], {*columns, *searchable.key, *shown_from})
    behind = 0 if view.generation is None else view.generation.rows
    answer = []
    for one in found:
        row, chunk = rows[one.number], None if one.piece is None else chunks.get(one.piece)
        shown, column = _snippet(searchable, query, words, row, chunk, worded=one.is_worded)
        answer.append(
            Hit(
                key=searchable.key_of(row),
                score=one.score,
                row={name: row[name] for name in columns},
                fresh=one.number >= behind,
                vector_score=one.vector_score,
                text_score=one.text_score,
                chunk=chunk,
                snippet=shown,
                snippet_column=column,
            )
        )
    return tuple(answer)


def _found(
    view: FreshView, query: SearchQuery, best: Sequence[tuple[HitPlace, float]], by_vector: Ranked, by_text: Ranked
) -> list[RankedHit]:
    # All at once: taking numbers out of arrays one by one is half the work for ten hits.
    near, pieces, near_scores = by_vector.numbers.tolist(), by_vector.pieces.tolist(), by_vector.scores.tolist()
    worded, worded_scores = by_text.numbers.tolist(), by_text.scores.tolist()
    found = []
    for (at_near, at_worded), score in best:
        text_score = None if at_worded is None else worded_scores[at_worded]
        if at_near is None:
            found.append(RankedHit(worded[at_worded], None, score, None, text_score, is_worded=True))
            continue
        piece = pieces[at_near]
        number = near[at_near] if query.by_document else _home(view, piece)
        found.append(RankedHit(number, piece, score, near_scores[at_near], text_score, at_worded is not None))
    return found


def _columns(searchable: Searchable, query: SearchQuery) -> tuple[str, ...]:
    known = searchable.schema.names
    if query.columns is None:
        return tuple(known)
    for name in query.columns:
        if name not in known:
            raise InvalidInput(
                f"{searchable.table} has no column {name!r}", code="unknown_column", hint=f"it has {', '.join(known)}"
            )
    return query.columns


def _rows(
    searchable: Searchable, view: FreshView, numbers: Sequence[int], columns: set[str]
) -> dict[int, Mapping[str, Any]]:
    """The rows of these documents; a column that came after the generation was built is empty in it."""
    wanted = [name for name in searchable.schema.names if name in columns]
    behind = 0 if view.generation is None else view.generation.rows
    found: dict[int, Mapping[str, Any]] = {}
    old = sorted({number for number in numbers if number < behind})
    if old and view.generation is not None:
        there = [name for name in wanted if name in view.generation.contents.rows.schema.names]
        taken = view.generation.contents.read_rows(old, there)
        empty = dict.fromkeys(wanted)
        found = {number: {**empty, **row} for number, row in zip(old, taken, strict=True)}
    for number in numbers:
        if number >= behind:
            row = view.slots.documents[number - behind].row
            found[number] = {name: row.get(name) for name in wanted}
    return found


def _home(view: FreshView, piece: int) -> int:
    """The number of the document that a piece is of."""
    generation = view.generation
    if generation is None:
        return int(view.homes[piece])
    behind = len(generation.documents)
    return int(generation.documents[piece]) if piece < behind else generation.rows + int(view.homes[piece - behind])


def _chunks(view: FreshView, pieces: Sequence[int]) -> dict[int, Chunk]:
    generation = view.generation
    behind = 0 if generation is None else len(generation.documents)
    found: dict[int, Chunk] = {}
    old = sorted({piece for piece in pieces if piece < behind})
    if old and generation is not None:
        found = _old_chunks(generation, old)
    for piece in pieces:
        if piece >= behind:
            found[piece] = view.slots.chunks[piece - behind]
    return found


def _old_chunks(generation: Generation, ordinals: Sequence[int]) -> dict[int, Chunk]:
    taken = generation.contents.read_chunks(ordinals, _CHUNK_COLUMNS)
    return {
        ordinal: Chunk(row["number"], row["start"], row["end"], row["text"])
        for ordinal, row in zip(ordinals, taken, strict=True)
    }


def _snippet(
    searchable: Searchable,
    query: SearchQuery,
    words: TextQuery | None,
    row: Mapping[str, Any],
    chunk: Chunk | None,
    *,
    worded: bool,
) -> tuple[TextSnippet | None, str]:
    """From the column that shows most of the words, if it was found by them; else from the chunk."""
    if not query.snippet_characters:
        return None, ""
    looked_for = words if words is not None else _NO_WORDS
    language = searchable.language
    if worded:
        columns = [name for name in searchable.text if row[name] and (query.fields is None or name in query.fields)]
        shown = [
            (
                best_snippet(
                    looked_for, row[name], column=name, language=language, characters=query.snippet_characters
                ),
                name,
            )
            for name in columns
        ]
        return max(shown, key=lambda one: len(one[0].marks), default=(None, ""))
    if chunk is None:
        return None, ""
    return best_snippet(looked_for, chunk.text, column="", language=language, characters=query.snippet_characters), ""
