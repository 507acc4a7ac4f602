"""The cut of an entity: that of its history, on top of its base.

Base and history need no common moment of their own. The base says up to where the history is folded into it; whatever
of the history lies above that is put on top. Where the base is the newer one, some events are put on top that it holds
already, which changes nothing: only those of a key's latest time apply again, and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.errors import FrazilError, NotFound
from frazil.events.declaration import PATCH
from frazil.lake.catalog import LakeTable, SnapshotExpired, SnapshotInfo, columns_at, watermark_at
from frazil.serving.sql import Relation
from frazil.serving.sql.worker import EntityOverlay

if TYPE_CHECKING:
    from frazil.gateway.query.cut import CutTable


@dataclass(frozen=True)
class EntitySnapshot:
    """Which base an entity is read from."""

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
            hint="ask for a later time; its history still has every event",
        )
    return EntitySnapshot(base, None, pinned=True)


def overlay_on_base(
    relation: Relation,
    told: CutTable,
    at: EntitySnapshot,
    history: LakeTable,
    newest: Callable[[LakeTable], LakeTable],
) -> tuple[Relation, CutTable]:
    """The cut of a history, turned into that of the entity."""
    base = at.base if at.pinned else newest(at.base)
    snapshot_id = (at.snapshot.snapshot_id if at.snapshot else None) if at.pinned else base.snapshot_id
    folded = _folded(base, at, snapshot_id)
    present = columns_at(base, snapshot_id) if snapshot_id is not None else base.spec.row_schema()
    columns = pa.schema([field for field in relation.columns if field.name != PATCH])
    reached = told.watermark
    if reached is None and told.snapshot_id is not None:  # a compaction's: what it was made of says how far it is
        reached = watermark_at(history, told.snapshot_id)
    needs_history = not at.alone and relation.metadata is not None and (reached is None or reached > folded)
    folding = EntityOverlay(
        key=history.spec.key,
        base_columns=present.names,
        history=relation.metadata if needs_history else None,
        history_snapshot_id=relation.snapshot_id,
        start=folded,
    )
    of_entity = replace(
        relation,
        columns=present if at.alone else columns,
        metadata=base.metadata_location if snapshot_id is not None else None,
        snapshot_id=snapshot_id if at.pinned else None,
        tail=None if relation.tail is not None and relation.tail.end <= relation.tail.start else relation.tail,
        folding=folding,
    )
    committed_at = at.snapshot.committed_at if at.alone and at.snapshot else told.committed_at
    told = replace(
        told,
        name=base.name,
        snapshot_id=snapshot_id,
        history_snapshot_id=None if at.alone else told.snapshot_id,
        is_entity=True,
        committed_at=committed_at,
        watermark=folded if at.alone else _later(reached, folded),
        end=folded if at.alone else _later(told.end if told.end is not None else reached, folded),
    )
    return of_entity, told


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
