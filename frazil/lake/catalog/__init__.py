"""Catalog: tables declared, altered, dropped and found; their metadata and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.catalog.entity import Entity as Entity
    from frazil.lake.catalog.entity import align_base as align_base
    from frazil.lake.catalog.entity import alter_entity as alter_entity
    from frazil.lake.catalog.entity import complete_entity as complete_entity
    from frazil.lake.catalog.entity import create_entity as create_entity
    from frazil.lake.catalog.entity import drop_entity as drop_entity
    from frazil.lake.catalog.entity import finish_declaring as finish_declaring
    from frazil.lake.catalog.entity import load_entity as load_entity
    from frazil.lake.catalog.entity import pair_entity as pair_entity
    from frazil.lake.catalog.entity import undrop as undrop
    from frazil.lake.catalog.lake import Lake as Lake
    from frazil.lake.catalog.lake import changed_by as changed_by
    from frazil.lake.catalog.lake import open_lake as open_lake
    from frazil.lake.catalog.lake import same_declaration as same_declaration
    from frazil.lake.catalog.purge import begin_purge as begin_purge
    from frazil.lake.catalog.purge import plan_purge as plan_purge
    from frazil.lake.catalog.purge import purge_files as purge_files
    from frazil.lake.catalog.snapshot_lookup import SnapshotExpired as SnapshotExpired
    from frazil.lake.catalog.snapshot_lookup import columns_at as columns_at
    from frazil.lake.catalog.snapshot_lookup import snapshot_as_of as snapshot_as_of
    from frazil.lake.catalog.snapshot_lookup import snapshot_by_id as snapshot_by_id
    from frazil.lake.catalog.snapshot_lookup import snapshot_with as snapshot_with
    from frazil.lake.catalog.snapshot_lookup import watermark_at as watermark_at
    from frazil.lake.catalog.table import BATCH as BATCH
    from frazil.lake.catalog.table import FOLDED_ROWS as FOLDED_ROWS
    from frazil.lake.catalog.table import PREVIOUS_WATERMARK as PREVIOUS_WATERMARK
    from frazil.lake.catalog.table import WATERMARK as WATERMARK
    from frazil.lake.catalog.table import LakeTable as LakeTable
    from frazil.lake.catalog.table import SnapshotInfo as SnapshotInfo
    from frazil.lake.catalog.version_hint import export_hint as export_hint

__getattr__, __all__ = lazy_door(__name__)
