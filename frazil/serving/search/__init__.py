"""Search engine: one generation of an artifact and the fresh documents, ranked together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.search.fresh_documents import DocumentChange as DocumentChange
    from frazil.serving.search.fresh_documents import FreshDocuments as FreshDocuments
    from frazil.serving.search.fresh_documents import FreshFull as FreshFull
    from frazil.serving.search.fresh_documents import FreshGap as FreshGap
    from frazil.serving.search.fresh_documents import FreshView as FreshView
    from frazil.serving.search.generation import Generation as Generation
    from frazil.serving.search.generation_swap import ServedGenerations as ServedGenerations
    from frazil.serving.search.generation_swap import ServingStatus as ServingStatus
    from frazil.serving.search.generation_swap import SwapFailure as SwapFailure
    from frazil.serving.search.generation_swap import SwapResult as SwapResult
    from frazil.serving.search.query import Allowed as Allowed
    from frazil.serving.search.query import Hit as Hit
    from frazil.serving.search.query import SearchQuery as SearchQuery
    from frazil.serving.search.query import SearchResult as SearchResult
    from frazil.serving.search.ranked_search import SearchState as SearchState
    from frazil.serving.search.searchable import Searchable as Searchable

__getattr__, __all__ = lazy_door(__name__)
