"""Snapshot expiry: by number during commits; by number and age on request or when idle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyiceberg.table.refs import SnapshotRefType

from frazil.lake.catalog.table import LakeTable, SnapshotInfo


def expiry_cutoff(
    lineage: Sequence[SnapshotInfo],
    *,
    budget: int,
    keep_seconds: float,
    age_seconds: float | None = None,
    now: datetime,
) -> datetime | None:
    """The moment before which snapshots may go, those of `lineage` (newest first) among them; None when none may.

    Kept are the newest `budget`, those younger than `age_seconds`, the newest marked one (the watermark is read from
    it), and all that were current within the last `keep_seconds`: a reader that began then may still be reading. What
    a tag or a branch names, Iceberg's own expiry keeps.
    """
    if not lineage:
        return None
    limits = []
    if len(lineage) > budget:
        limits.append(lineage[budget - 1].committed_at)
    if age_seconds is not None:
        limits.append(now - timedelta(seconds=age_seconds))
    if not limits:
        return None
    needed = [lineage[0].committed_at, *_current_at(lineage, now - timedelta(seconds=keep_seconds))]
    needed += [snapshot.committed_at for snapshot in lineage if snapshot.watermark is not None][:1]
    before = min(max(limits), *needed)
    return before if lineage[-1].committed_at < before else None


def _current_at(lineage: Sequence[SnapshotInfo], moment: datetime) -> list[datetime]:
    """When the snapshot that was current at this moment was made; it may be much older than the moment."""
    older = [snapshot.committed_at for snapshot in lineage if snapshot.committed_at <= moment]
    return older[:1] or [lineage[-1].committed_at]


def snapshots_over_budget(table: LakeTable, *, budget: int, keep_seconds: float, now: datetime) -> list[int]:
    """The snapshots that routine expiry lets go, once they are more than a quarter of the budget.

    Kept are the newest `budget`, the newest marked one, what a tag or a branch names with all that led to it, and what
    the readers of the last `keep_seconds` need.
    """
    lineage = table.snapshots()
    if not lineage or table.spec.keep_snapshots == "all":
        return []
    oldest = lineage[:budget][-1].committed_at
    every = table.every_snapshot()
    needed = needed_by_readers(every, keep_seconds=keep_seconds, now=now) | named_snapshots(table, every)
    needed |= set([snapshot.snapshot_id for snapshot in lineage if snapshot.watermark is not None][:1])
    expired = [s.snapshot_id for s in every if s.committed_at < oldest and s.snapshot_id not in needed]
    return expired if len(expired) > budget // 4 else []


def needed_by_readers(every: Sequence[SnapshotInfo], *, keep_seconds: float, now: datetime) -> set[int]:
    """The rewrites of the last `keep_seconds`, and the snapshot before each: it names all files that were replaced.

    Rows are only ever added otherwise, so that a reader of a snapshot from before a rewrite reads files of the last
    one before it. While that one stays, the others may go: a table that commits every second need not keep hundreds of
    snapshots for the sake of a reader, and its commits stay quick.
    """
    recent = now - timedelta(seconds=keep_seconds)
    rewrites = [s for s in every if s.operation in ("replace", "overwrite", "delete") and s.committed_at > recent]
    return {known for s in rewrites for known in (s.snapshot_id, s.parent_id) if known is not None}


def named_snapshots(table: LakeTable, every: Sequence[SnapshotInfo]) -> set[int]:
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in every}
    named: set[int] = set()
    for name, reference in table.iceberg.metadata.refs.items():
        at: int | None = reference.snapshot_id
        while at in parents:
            named.add(at)
            at = parents[at] if reference.snapshot_ref_type == SnapshotRefType.BRANCH and name != "main" else None
    return named
