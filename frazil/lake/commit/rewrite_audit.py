"""Rewrite audit: a snapshot that only moves rows between files must have removed exactly what it added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from frazil.errors import DataLoss
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable, summary_of

_BATCH_ROWS = 1 << 20


@dataclass(frozen=True)
class RewriteAudit:
    """What a rewrite did."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def __add__(self, other: RewriteAudit) -> RewriteAudit:
        return RewriteAudit(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def rewrites(table: LakeTable) -> list[Snapshot]:
    """The rewrites that can still be compared with their parents, oldest first."""
    metadata = table.iceberg.metadata
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return [
        snapshot
        for snapshot in metadata.snapshots
        if summary_of(snapshot).get("operation") == "replace" and snapshot.parent_snapshot_id in known
    ]


def audit_rewrite(table: LakeTable, snapshot: Snapshot) -> RewriteAudit:
    """Prove that the files added hold the very rows, by position, of the files taken away; `DataLoss` if not.

    The old files are still there: expiry keeps them for a while. Only `_seq` is read, and nothing is held in memory.
    """
    io = table.iceberg.io
    with translated(f"audit a rewrite of {table.name}"):
        added, removed = changed_files(snapshot, io)
        before, after = _positions(removed, io), _positions(added, io)
    parent = table.iceberg.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    totals = {summary_of(known).get("total-records") for known in (parent, snapshot) if known is not None}
    if before != after or len(totals) != 1:
        raise DataLoss(
            f"the rewrite {snapshot.snapshot_id} of {table.name} took away {before.rows} rows and added {after.rows}, "
            "or other ones",
            code="rewrite_audit_failed",
            hint=f"stop the pipeline and roll the table back to snapshot {snapshot.parent_snapshot_id}",
        )
    return RewriteAudit(len(removed), len(added), _size(removed), _size(added), after.rows)


def changed_files(snapshot: Snapshot, io: FileIO) -> tuple[list[DataFile], list[DataFile]]:
    """The files that this snapshot added, and those it took away."""
    added, removed = [], []
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
            if entry.snapshot_id == snapshot.snapshot_id and entry.status is ManifestEntryStatus.ADDED:
                added.append(entry.data_file)
            elif entry.snapshot_id == snapshot.snapshot_id and entry.status is ManifestEntryStatus.DELETED:
                removed.append(entry.data_file)
    return added, removed


@dataclass(frozen=True)
class RowSum:
    """How many rows, and two sums over a hash of their positions: equal for the same rows in any order."""

    rows: int = 0
    total: int = 0
    crossed: int = 0

    @classmethod
    def of(cls, positions: npt.NDArray[np.int64]) -> RowSum:
        mixed = _mixed(positions.view(np.uint64))
        with np.errstate(over="ignore"):
            total = int(mixed.sum(dtype=np.uint64))
        return cls(len(mixed), total, int(np.bitwise_xor.reduce(mixed, initial=np.uint64(0))))

    def __add__(self, other: RowSum) -> RowSum:
        total = (self.total + other.total) % (1 << 64)
        return RowSum(self.rows + other.rows, total, self.crossed ^ other.crossed)


def _positions(files: Iterable[DataFile], io: FileIO) -> RowSum:
    found = RowSum()
    for file in files:
        with io.new_input(file.file_path).open() as stream:
            parquet = pq.ParquetFile(stream)
            if "_seq" not in parquet.schema_arrow.names:  # of a bulk table: its rows can only be counted
                found += RowSum(parquet.metadata.num_rows)
                continue
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=["_seq"]):
                found += RowSum.of(batch.column(0).to_numpy())
    return found


def _mixed(positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Splitmix64: neighbours become strangers, so that two wrong rows cannot add up to two right ones."""
    with np.errstate(over="ignore"):
        mixed = positions + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.file_size_in_bytes for file in files)
