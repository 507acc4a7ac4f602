"""Ingest: one writer per table, from a request to a durable receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.ingest.partition_budget import PartitionBudget as PartitionBudget
    from frazil.gateway.ingest.table_writers import TableWriters as TableWriters

__getattr__, __all__ = lazy_door(__name__)
