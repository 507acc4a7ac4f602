"""Search at a stated freshness, over artifacts and fresh documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.search.searches import Searches as Searches
    from frazil.gateway.search.shelf_readers import ShelfReaders as ShelfReaders

__getattr__, __all__ = lazy_door(__name__)
