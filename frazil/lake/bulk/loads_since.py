"""Loads since a snapshot: bulk loads and removals of rows, which the stream of a log does not have."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.lake.catalog.table import LOAD_POSITION, WATERMARK, LakeTable, summary_of


@dataclass(frozen=True)
class LoadsSince:
    loads: tuple[int, ...] = ()
    """The `_seq` of the rows of each bulk load that was added."""
    rewritten: bool = False
    """Rows may be gone, or it is unknown: a snapshot in between is expired or was not made by frazil."""


def loads_since_snapshot(table: LakeTable, snapshot_id: int | None) -> LoadsSince:
    """The loads and rewrites after this snapshot, up to the current one. Events are left out: they have positions."""
    loads: list[int] = []
    snapshot = table.iceberg.metadata.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id != snapshot_id:
        summary = summary_of(snapshot)
        operation, parent = summary.get("operation"), snapshot.parent_snapshot_id
        if operation == "append" and LOAD_POSITION in summary:
            loads.append(int(summary[LOAD_POSITION]))
        elif operation != "replace" and not (operation == "append" and WATERMARK in summary):
            return LoadsSince(rewritten=True)
        first = snapshot.sequence_number == 1
        snapshot = None if parent is None else table.iceberg.metadata.snapshot_by_id(parent)
        # An expiry takes the name of its parent from the snapshot after it: only the number shows which was the first.
        if snapshot is None and not (first and snapshot_id is None):
            return LoadsSince(rewritten=True)
    return LoadsSince(tuple(loads))
