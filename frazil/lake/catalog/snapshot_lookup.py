"""Snapshot lookup: by id, or the snapshot that was current at a time."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from frazil.errors import NotFound
from frazil.lake.catalog.table import LOAD_POSITION, LakeTable, SnapshotInfo, summary_of


class SnapshotExpired(NotFound):
    code = "snapshot_expired"
    status = 410


def snapshot_by_id(table: LakeTable, snapshot_id: int) -> SnapshotInfo:
    """The snapshot of this id, if it led to the current state. What was only staged, or rolled back, is not found."""
    for snapshot in table.snapshots():
        if snapshot.snapshot_id == snapshot_id:
            return snapshot
    raise NotFound(
        f"{table.spec.short_name!r} has no snapshot {snapshot_id}",
        code="snapshot_not_found",
        hint=f"`frazil tables history {table.spec.short_name}` lists those it has",
    )


def snapshot_as_of(table: LakeTable, moment: datetime) -> SnapshotInfo:
    """The snapshot that was current at this moment."""
    short = table.spec.short_name
    lineage = table.snapshots()
    for snapshot in lineage:
        if snapshot.committed_at <= moment:
            return snapshot
    if not lineage or _is_first(lineage[-1]):
        first = lineage[-1].committed_at.isoformat() if lineage else "not yet"
        raise NotFound(
            f"{short!r} had no snapshot at {moment.isoformat()}; its first commit: {first}",
            code="before_first_snapshot",
            hint="ask for a later time",
        )
    raise SnapshotExpired(
        f"the snapshots of {short!r} from {moment.isoformat()} are expired; the oldest kept is from "
        f"{lineage[-1].committed_at.isoformat()}",
        hint="ask for a later time; pipeline.snapshot_budget says how many snapshots are kept",
    )


def _is_first(oldest: SnapshotInfo) -> bool:
    """Whether nothing came before. Expiry may take away a snapshot's parent, but not the rows it started from."""
    return oldest.parent_id is None and oldest.operation == "append" and oldest.added_rows == oldest.total_rows


def columns_at(table: LakeTable, snapshot_id: int) -> pa.Schema:
    """The columns that the table had at this snapshot, in its order of today."""
    metadata = table.iceberg.metadata
    snapshot = metadata.snapshot_by_id(snapshot_id)
    of_snapshot = [schema for schema in metadata.schemas if snapshot and schema.schema_id == snapshot.schema_id]
    schema = table.spec.row_schema()
    if not of_snapshot:
        return schema
    names = {field.name for field in of_snapshot[0].fields}
    return pa.schema([field for field in schema if field.name in names])


def watermark_at(table: LakeTable, snapshot_id: int) -> int | None:
    """Every event below it was in the table at this snapshot; None where nothing that is left says so."""
    if snapshot_id == table.snapshot_id:
        return table.watermark
    return table.marked_watermark(snapshot_id)


def snapshot_with(table: LakeTable, position: int) -> SnapshotInfo | None:
    """The oldest snapshot still known that has the row at this position; None while none has."""
    if position < 0:
        return _loaded_with(table, position)
    found = None
    for snapshot in table.snapshots():
        if snapshot.watermark is not None:
            if snapshot.watermark <= position:
                break
            found = snapshot
    return found


def _loaded_with(table: LakeTable, position: int) -> SnapshotInfo | None:
    """The snapshot of the bulk load whose rows have this position, if it is not expired."""
    made = {
        s.snapshot_id for s in table.iceberg.metadata.snapshots if summary_of(s).get(LOAD_POSITION) == str(position)
    }
    return next((snapshot for snapshot in table.snapshots() if snapshot.snapshot_id in made), None)
