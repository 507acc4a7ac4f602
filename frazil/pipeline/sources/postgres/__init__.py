"""Postgres loads: nightly archives, incremental and full refreshes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.sources.postgres.archive_trigger import ArchiveTrigger as ArchiveTrigger
    from frazil.pipeline.sources.postgres.handler import PostgresLoads as PostgresLoads
    from frazil.pipeline.sources.postgres.refresh import LoadServices as LoadServices

__getattr__, __all__ = lazy_door(__name__)
