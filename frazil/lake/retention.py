"""Which snapshots may go. Tags and branches need no word here: Iceberg's own expiry keeps what they name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from frazil.lake.table import SnapshotInfo


def expire_before(
    lineage: Sequence[SnapshotInfo],
    *,
    budget: int,
    keep_seconds: float,
    age_seconds: float | None = None,
    now: datetime,
) -> datetime | None:
    """The moment before which snapshots may go, those of `lineage` (newest first) among them; None when none may.

    Kept are the newest `budget`, those younger than `age_seconds`, the newest marked one (the watermark is read from
    it), and all that were current within the last `keep_seconds`: a reader that began then may still be reading.
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


def replaced_since(lineage: Sequence[SnapshotInfo], *, keep_seconds: float, now: datetime) -> datetime | None:
    """When the snapshot was made that still names all files which compaction replaced within `keep_seconds`.

    Rows are only ever added otherwise, so that whoever reads a snapshot from before a compaction reads files of the
    last one before it. While that one stays, routine expiry may let the others go: a table that commits every second
    need not keep hundreds of snapshots for the sake of a reader.
    """
    recent = now - timedelta(seconds=keep_seconds)
    by_id = {snapshot.snapshot_id: snapshot for snapshot in lineage}
    replaced = [s for s in lineage if s.operation in ("replace", "overwrite", "delete") and s.committed_at > recent]
    parents = [by_id[s.parent_id].committed_at for s in replaced if s.parent_id in by_id]
    return min(parents, default=None)
