"""Ingest: one writer per table, from a request to a durable receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.ingest.directory import TableDirectory as TableDirectory

__getattr__, __all__ = lazy_door(__name__)
