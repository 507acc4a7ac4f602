"""Query: SQL at a stated freshness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.query.queries import Queries as Queries

__getattr__, __all__ = lazy_door(__name__)
