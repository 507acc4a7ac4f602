"""Search plan: a request combined with its profile and the grant of the caller, for one table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from frazil.access import ReadGrant
from frazil.embedding import OWN
from frazil.errors import InvalidInput
from frazil.requests import DEFAULT_K, Mode, SearchRequest
from frazil.serving import Profile
from frazil.serving.search import Searchable, SearchQuery
from frazil.serving.sql.worker import RowSelection


class MaskedText(InvalidInput):
    """The caller may not read what it wants to search in."""

    code = "masked_text"


@dataclass(frozen=True, kw_only=True)
class SearchPlan(SearchQuery):
    """The query of the engine, and what is decided around it."""

    selection: RowSelection
    """The documents that may be found."""
    key: tuple[str, ...]
    """The key columns of a document."""
    shown: tuple[str, ...]
    """The columns of the rows in the answer."""
    by_rank: bool
    """Scores are by rank and nothing else: BM25 counts words of rows that the caller may not see."""
    min_rank_score: float | None = None
    """Of such scores."""


def plan_search(
    searchable: Searchable, request: SearchRequest, profile: Profile | None, grant: ReadGrant
) -> SearchPlan:
    """Raises `InvalidInput` for a search that this table cannot answer, or not for this caller."""
    masked = frozenset(grant.masks)
    mode = _mode(searchable, request, profile, masked)
    by_rank = bool(grant.filters) and mode == "text"
    columns = request.shown_columns if request.columns is not None else (profile.columns if profile else None)
    shown = _columns(searchable, columns)
    conditions = tuple(text for text in (profile.filter if profile else None, request.condition) if text is not None)
    return SearchPlan(
        text=request.query,
        vector=None if request.vector is None or mode == "text" else np.asarray(request.vector, np.float32),
        mode=mode,
        k=request.k or (profile.k if profile else None) or DEFAULT_K,
        offset=request.offset,
        min_score=None if by_rank else request.min_score,
        vector_weight=request.weights.vector,
        text_weight=request.weights.text,
        fields=_fields(searchable, request, masked),
        columns=tuple(dict.fromkeys((*shown, *searchable.key))),
        by_document=request.by_document,
        snippet_characters=request.snippet_characters,
        passages=not masked & {*searchable.text},
        selection=RowSelection(searchable.schema, grant.where, grant.masks, grant.hash_domains, conditions),
        key=searchable.key,
        shown=shown,
        by_rank=by_rank,
        min_rank_score=request.min_score if by_rank else None,
    )


def _mode(searchable: Searchable, request: SearchRequest, profile: Profile | None, masked: frozenset[str]) -> Mode:
    """As requested, or by default everything that the table has, the request gives and the caller may search."""
    wanted = request.mode
    if wanted is None and profile is not None and (request.query is not None or profile.mode == "vector"):
        wanted = profile.mode
    mode = wanted or _default_mode(searchable, request, masked)
    if mode != "vector" and request.query is None:
        raise InvalidInput(
            f"a search of mode {mode} needs words", code="bad_search", hint='give `query`, or use mode "vector"'
        )
    if mode != "text" and (hidden := _hidden_from_vectors(searchable, masked)):
        raise MaskedText(
            f"the vectors were made from {', '.join(hidden)}, which this token sees masked",
            hint='search with mode "text"',
        )
    if mode != "vector" and searchable.text and masked >= {*searchable.text}:
        raise MaskedText("this token sees every text column masked", hint="ask the admin for a token that sees it")
    return mode


def _default_mode(searchable: Searchable, request: SearchRequest, masked: frozenset[str]) -> Mode:
    own = searchable.model is not None and searchable.model.name == OWN
    by_vector = (
        searchable.model is not None
        and not _hidden_from_vectors(searchable, masked)
        and (request.vector is not None or not own)
    )
    by_text = bool(searchable.text) and request.query is not None
    if by_vector and by_text:
        return "hybrid" if request.by_document else "vector"
    return "vector" if by_vector or not by_text else "text"


def _hidden_from_vectors(searchable: Searchable, masked: frozenset[str]) -> list[str]:
    """The masked columns that the vectors are made from."""
    sources = (searchable.vector,) if searchable.vector is not None else searchable.text
    return [name for name in sources if name in masked]


def _fields(searchable: Searchable, request: SearchRequest, masked: frozenset[str]) -> dict[str, float] | None:
    if request.fields is not None:
        if hidden := [name for name in request.fields if name in masked and name in searchable.text]:
            raise MaskedText(f"this token sees {', '.join(hidden)} masked", hint="search other fields")
        return request.field_weights
    if not masked & {*searchable.text}:
        return None
    return {name: 1.0 for name in searchable.text if name not in masked}


def _columns(searchable: Searchable, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    known = searchable.schema.names
    if wanted is None:
        return tuple(known)
    for name in wanted:
        if name not in known:
            raise InvalidInput(
                f"the table has no column {name[:80]!r}", code="unknown_column", hint=f"it has {', '.join(known)}"
            )
    return wanted
