"""Hits with their rows: taken from the mapped files for the few that are answered, and copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.embedding import Chunk
from frazil.errors import InvalidInput
from frazil.serving.search.ask import Ask, Hit
from frazil.serving.search.fresh import FreshView
from frazil.serving.search.generation import Generation
from frazil.serving.search.ranking import Ranked
from frazil.serving.search.searchable import Searchable
from frazil.serving.text import Snippet, TextQuery, read_query, snippet

_NOTHING_ASKED = read_query("", ())
_CHUNK_COLUMNS = ("number", "start", "end", "text")


@dataclass(frozen=True)
class Place:
    """Where a hit stands in the ranking by vector and in that by words."""

    near: int | None
    worded: int | None


@dataclass(frozen=True)
class _Found:
    number: int
    piece: int | None
    place: Place
    score: float


def hits(
    searchable: Searchable,
    view: FreshView,
    ask: Ask,
    query: TextQuery | None,
    best: Sequence[tuple[Place, float]],
    by_vector: Ranked,
    by_text: Ranked,
) -> tuple[Hit, ...]:
    columns = _columns(searchable, ask)
    found = []
    for place, score in best:
        piece = None if place.near is None else int(by_vector.pieces[place.near])
        if not ask.by_document and piece is not None:
            number = _home(view, piece)
        else:
            number = int(by_vector.numbers[place.near] if place.near is not None else by_text.numbers[_at(place)])
        found.append(_Found(number, piece, place, score))
    chunks = _chunks(view, [one.piece for one in found if one.piece is not None]) if ask.passages else {}
    shown_from = searchable.text if ask.snippet_characters and ask.mode != "vector" else ()
    rows = _rows(searchable, view, [one.number for one in found], {*columns, *searchable.key, *shown_from})
    behind = 0 if view.generation is None else view.generation.rows
    answer = []
    for one in found:
        row, chunk = rows[one.number], None if one.piece is None else chunks.get(one.piece)
        is_worded = one.place.worded is not None or one.piece is None
        shown, column = _snippet(searchable, ask, query, row, chunk, worded=is_worded)
        answer.append(
            Hit(
                key=searchable.key_of(row),
                score=one.score,
                row={name: row[name] for name in columns},
                fresh=one.number >= behind,
                vector_score=None if one.place.near is None else float(by_vector.scores[one.place.near]),
                text_score=None if one.place.worded is None else float(by_text.scores[one.place.worded]),
                chunk=chunk,
                snippet=shown,
                snippet_column=column,
            )
        )
    return tuple(answer)


def _at(place: Place) -> int:
    assert place.worded is not None
    return place.worded


def _columns(searchable: Searchable, ask: Ask) -> tuple[str, ...]:
    known = searchable.schema.names
    if ask.columns is None:
        return tuple(known)
    for name in ask.columns:
        if name not in known:
            raise InvalidInput(
                f"{searchable.table} has no column {name!r}", code="unknown_column", hint=f"it has {', '.join(known)}"
            )
    return ask.columns


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
    ask: Ask,
    query: TextQuery | None,
    row: Mapping[str, Any],
    chunk: Chunk | None,
    *,
    worded: bool,
) -> tuple[Snippet | None, str]:
    """From the column that shows most of the words, if it was found by them; else from the chunk."""
    if not ask.snippet_characters:
        return None, ""
    asked = query if query is not None else _NOTHING_ASKED
    language = searchable.language
    if worded:
        columns = [name for name in searchable.text if row[name] and (ask.fields is None or name in ask.fields)]
        shown = [
            (snippet(asked, row[name], column=name, language=language, characters=ask.snippet_characters), name)
            for name in columns
        ]
        return max(shown, key=lambda one: len(one[0].marks), default=(None, ""))
    if chunk is None:
        return None, ""
    return snippet(asked, chunk.text, column="", language=language, characters=ask.snippet_characters), ""
