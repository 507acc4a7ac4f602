"""Ranked search over one state: the generation's documents and the fresh ones, ranked together.

A document is a number here: its row in the generation, or behind those its slot among the fresh ones. Equals are
ranked by that number, so the same state gives the same answer, page by page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from frazil.embedding import Vectors
from frazil.errors import InvalidInput
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.search.fresh_documents import FreshView
from frazil.serving.search.fusion import Ranking, fuse
from frazil.serving.search.generation import Generation, Mask
from frazil.serving.search.hydration import HitPlace, hydrate
from frazil.serving.search.query import Allowed, SearchQuery, SearchResult
from frazil.serving.search.ranking import NOTHING, Floats, Ranked, joined, ranked
from frazil.serving.search.searchable import Searchable
from frazil.serving.text.query_syntax import TextQuery, read_query
from frazil.serving.text.text_index import MAX_K as WIDEST_TEXT
from frazil.serving.vectors.exact_search import search_exactly
from frazil.serving.vectors.vector_index import MAX_K as WIDEST_VECTORS

# How deep the rankings go that are fused. Who looks further gets the fusion of rankings twice as deep behind it, and so
# on: a page does not depend on how far the next one reaches.
_FUSED = 100


@dataclass(frozen=True)
class _Scope:
    """The documents of one state that a search may see."""

    view: FreshView
    rows: Bitmap | None
    chunks: Bitmap | None
    slots: Mask
    """Of the fresh documents."""

    @property
    def offset(self) -> int:
        """The number of the first fresh document."""
        return 0 if self.view.generation is None else self.view.generation.rows


@dataclass(frozen=True)
class SearchState:
    """One state of a table's documents, for as long as a reader needs it: a generation and what is fresh beside it."""

    searchable: Searchable
    view: FreshView

    @property
    def generation(self) -> Generation | None:
        return self.view.generation

    def search(self, query: SearchQuery, allowed: Allowed | None = None) -> SearchResult:
        """Answer from this state and no other. The caller is a reader of its generation meanwhile."""
        view, generation = self.view, self.view.generation
        words, vector = _words_and_vector(self.searchable, query)
        scope = _scope(view, allowed or Allowed(), by_vector=vector is not None)
        depth = _depth(query)
        by_vector = NOTHING if vector is None else _by_vector(scope, vector, depth, by_document=query.by_document)
        by_text = NOTHING if words is None or query.mode == "vector" else _by_text(scope, words, depth, query)
        best = _fused(query, by_vector, by_text)
        if query.min_score is not None:
            best = [(at, score) for at, score in best if score >= query.min_score]
        return SearchResult(
            hits=hydrate(self.searchable, view, query, words, best[query.offset : query.reach], by_vector, by_text),
            generation=None if generation is None else generation.name,
            snapshot_id=None if generation is None else generation.manifest.cut.snapshot_id,
            position=view.head,
            fresh_searched=int(scope.slots.sum()),
            ignored=() if words is None else words.ignored,
        )


def _words_and_vector(searchable: Searchable, query: SearchQuery) -> tuple[TextQuery | None, Vectors | None]:
    """The words and the vector that this mode looks for."""
    if query.mode != "text" and searchable.model is None:
        raise InvalidInput(
            f"{searchable.table} has no vectors",
            code="no_vectors",
            hint='search it with mode "text", or declare a model',
        )
    if query.mode != "vector" and not searchable.text:
        raise InvalidInput(
            f"{searchable.table} has no text columns", code="no_text", hint='search it with mode "vector"'
        )
    for name in query.fields or ():
        if name not in searchable.text:
            raise InvalidInput(
                f"{name!r} is not a text column", code="bad_weights", hint=f"text columns: {', '.join(searchable.text)}"
            )
    columns = (
        searchable.text if query.fields is None else tuple(name for name in searchable.text if name in query.fields)
    )
    words = None if query.text is None else read_query(query.text, columns)
    if query.mode == "text":
        return words, None
    return words, _vector(searchable, query)


def _vector(searchable: Searchable, query: SearchQuery) -> Vectors | None:
    assert searchable.model is not None
    if query.vector is not None:
        if len(query.vector) != searchable.model.dims:
            raise InvalidInput(
                f"the query vector has {len(query.vector)} dimensions, those of the table have {searchable.model.dims}",
                code="wrong_dimension",
                hint=f"embed the query with the model {searchable.model.name}",
            )
        return query.vector
    assert query.text is not None
    vector: Vectors = searchable.model.embed([query.text])[0]
    if vector.any():
        return vector
    if query.mode == "hybrid":
        return None
    raise InvalidInput("the query has no words that the model knows", code="empty_query", hint="write what to look for")


def _scope(view: FreshView, allowed: Allowed, *, by_vector: bool) -> _Scope:
    rows, generation = view.visible_rows, view.generation
    if allowed.rows is None or generation is None:
        chunks = view.visible_chunks if by_vector else None
    else:
        if allowed.rows.size != generation.rows:
            raise ValueError(f"the filter is over {allowed.rows.size} rows, the generation has {generation.rows}")
        rows = allowed.rows if rows is None else allowed.rows & rows
        chunks = generation.chunks_of(rows.mask()) if by_vector else None
    slots = view.live
    if allowed.fresh is not None:
        if allowed.fresh.size != view.count:
            raise ValueError(f"the filter is over {allowed.fresh.size} fresh documents, there are {view.count}")
        slots = np.zeros(len(view.live), np.bool_)
        slots[view.live_slots[allowed.fresh.mask()]] = True
    return _Scope(view, rows, chunks, slots)


def _depth(query: SearchQuery) -> int:
    if query.mode != "hybrid":
        return query.reach
    depth = _FUSED
    while depth < query.reach:
        depth *= 2
    return depth


def _by_vector(scope: _Scope, vector: Vectors, wanted: int, *, by_document: bool) -> Ranked:
    """Documents by their nearest chunk; or chunks, each with a number of its own."""
    generation, view = scope.view.generation, scope.view
    old, behind = NOTHING, 0
    if generation is not None and generation.index is not None and generation.index.rows:
        index, seen = generation.index, scope.chunks
        behind = index.rows
        total = index.rows if seen is None else seen.count
        if total:
            old = ranked(
                lambda count: _row(index.search(vector, count, allowed=seen)),
                wanted,
                total,
                homes=generation.documents if by_document and not generation.is_row_by_row else None,
                widest=WIDEST_VECTORS,
                everything=lambda count: _row(
                    search_exactly(index.vectors, vector.reshape(1, -1), count, allowed=seen)
                ),
            )
    if not len(view.vectors) or not scope.slots.any():
        return old
    chunks = Bitmap.of_mask(scope.slots[view.homes])
    new = ranked(
        lambda count: _row(search_exactly(view.vectors, vector.reshape(1, -1), count, allowed=chunks)),
        wanted,
        chunks.count,
        homes=view.homes if by_document else None,
        widest=chunks.count,
    )
    moved = Ranked(new.scores, new.numbers + (scope.offset if by_document else behind), new.pieces + behind)
    return joined(old, moved, wanted)


def _by_text(scope: _Scope, words: TextQuery, wanted: int, query: SearchQuery) -> Ranked:
    generation, view = scope.view.generation, scope.view
    old, text = NOTHING, None if generation is None else generation.text
    if text is not None and text.rows:
        seen = scope.rows
        old = ranked(
            lambda count: text.search(words, count, allowed=seen, weights=query.fields),
            wanted,
            text.rows if seen is None else seen.count,
            widest=WIDEST_TEXT,
            is_exact=text.is_one_segment,
        )
    if not scope.slots.any():
        return old
    slots = Bitmap.of_mask(scope.slots)
    new = ranked(
        lambda count: view.slots.search(words, count, allowed=slots, like=text, weights=query.fields),
        wanted,
        slots.count,
        widest=WIDEST_TEXT,
    )
    return joined(old, Ranked(new.scores, new.numbers + scope.offset, new.pieces), wanted)


def _fused(query: SearchQuery, by_vector: Ranked, by_text: Ranked) -> list[tuple[HitPlace, float]]:
    """Which places of the rankings are the answer, best first, each with its score."""
    if query.mode == "vector":
        return [(HitPlace(at, None), score) for at, score in enumerate(by_vector.scores.tolist())]
    if query.mode == "text":
        return [(HitPlace(None, at), score) for at, score in enumerate(by_text.scores.tolist())]
    near, worded = by_vector.numbers.tolist(), by_text.numbers.tolist()
    fused: dict[int, float] = {}
    depth = _FUSED
    while len(fused) < query.reach:
        rankings = [Ranking(near[:depth], query.vector_weight), Ranking(worded[:depth], query.text_weight)]
        # Equals by rank are ordered by number, whichever ranking has them.
        for number, score in sorted(fuse(rankings, 2 * depth), key=lambda scored: (-scored[1], scored[0])):
            fused.setdefault(number, score)
        if depth >= max(len(near), len(worded)):
            break
        depth *= 2
    best = list(fused.items())[: query.reach]
    places_near = {number: at for at, number in enumerate(near)}
    places_worded = {number: at for at, number in enumerate(worded)}
    return [(HitPlace(places_near.get(number), places_worded.get(number)), score) for number, score in best]


def _row(found: tuple[Floats, Ordinals]) -> tuple[Floats, Ordinals]:
    """The result of the one query."""
    return found[0][0], found[1][0]
