"""Entity cut: the cut of the history of an entity, on top of its base.

Base and history need no common moment of their own. The base says up to where the history is folded into it; whatever
of the history lies above that is put on top. Where the base is the newer one, some events are put on top that it holds
already, which changes nothing: only those of a key's latest time apply again, and in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from frazil.errors import FrazilError, NotFound
from frazil.events.declaration import PATCH
from frazil.lake.catalog import LakeTable, SnapshotExpired, SnapshotInfo, columns_at, watermark_at
from frazil.tables.cut import HistoryOverlay, TableCut


@dataclass(frozen=True)
class EntitySnapshot:
    """The base that an entity is read from."""

    base: LakeTable
    snapshot: SnapshotInfo | None = None
    """The one to read; None for the newest, or for none at all where the past had none yet."""
    pinned: bool = False
    alone: bool = False
    """Whether the base is read as it is, without any event above it."""


def base_as_of(base: LakeTable, history: LakeTable, at: SnapshotInfo, moment: datetime) -> EntitySnapshot:
    """The newest base of that moment that the history, as it was then, had reached."""
    reached = watermark_at(history, at.snapshot_id)
    lineage = base.snapshots()
    for snapshot in lineage:
        folded = watermark_at(base, snapshot.snapshot_id)
        if snapshot.committed_at <= moment and folded is not None and reached is not None and folded <= reached:
            return EntitySnapshot(base, snapshot, pinned=True)
    if lineage and (lineage[-1].parent_id is not None or lineage[-1].watermark is None):
        raise SnapshotExpired(
            f"the states of {base.spec.short_name!r} from {moment.isoformat()} are expired",
            hint="give a later time; its history still has every event",
        )
    return EntitySnapshot(base, None, pinned=True)


def overlay_on_base(history: TableCut, at: EntitySnapshot, base: LakeTable) -> TableCut:
    """The cut of the entity, from that of its history; `base` is the one of `at`, as it was last seen."""
    if at.pinned:
        base = at.base
    snapshot_id = (at.snapshot.snapshot_id if at.snapshot else None) if at.pinned else base.snapshot_id
    folded = _folded(base, at, snapshot_id)
    present = columns_at(base, snapshot_id) if snapshot_id is not None else base.spec.row_schema()
    reached = history.watermark
    if reached is None and history.snapshot_id is not None:  # of a compaction: the snapshots before it say how far
        reached = watermark_at(history.table, history.snapshot_id)
    overlay = HistoryOverlay(
        history,
        start=folded,
        base_columns=present.names,
        has_committed=not at.alone and history.metadata is not None and (reached is None or reached > folded),
        base_alone=at.alone,
    )
    return replace(
        history,
        table=base,
        columns=present if at.alone else pa.schema([field for field in history.columns if field.name != PATCH]),
        snapshot_id=snapshot_id,
        committed_at=at.snapshot.committed_at if at.alone and at.snapshot else history.committed_at,
        watermark=folded if at.alone else _later(reached, folded),
        end=folded if at.alone else _later(history.end if history.end is not None else reached, folded),
        pinned=at.pinned,
        overlay=overlay,
    )


def _later(reached: int | None, folded: int) -> int | None:
    return None if reached is None else max(reached, folded)


def _folded(base: LakeTable, at: EntitySnapshot, snapshot_id: int | None) -> int:
    """Every event below it is in the base."""
    if not at.pinned:
        return base.watermark
    if snapshot_id is None:
        return 0
    folded = watermark_at(base, snapshot_id)
    if folded is None:
        raise _unmarked(base, snapshot_id)
    return folded


def _unmarked(base: LakeTable, snapshot_id: int) -> FrazilError:
    return NotFound(
        f"snapshot {snapshot_id} of {base.spec.short_name!r} does not say which events it has",
        code="snapshot_not_found",
        hint=f"`frazil tables history {base.spec.short_name}` lists those that do",
    )
