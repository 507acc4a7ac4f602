"""Health of a table: its files, manifests and snapshots, counted from its metadata at a bounded cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from pyiceberg.manifest import ManifestContent

from frazil.errors import Unavailable
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable, SnapshotInfo
from frazil.lake.maintenance.row_retention import is_dated

MAX_MANIFESTS = 500
MAX_MANIFEST_BYTES = 16 << 20
"""So much is read, the newest manifests first; small files come with small commits, and those are the newest."""


@dataclass(frozen=True)
class Health:
    table: str
    rows: int
    files: int
    bytes: int
    small_files: int
    """Among the files of the manifests that were read."""
    small_by_partition: tuple[int, ...]
    """The same, of each partition that has any: only files of one partition can become one."""
    delete_files: int
    manifests: int
    manifests_read: int
    snapshots: int
    """All of them: also those that were only staged, and those that a tag or a branch holds."""
    metadata_files: int
    metadata_bytes: int
    """What a reader loads before the first row: the metadata file and all manifests of the current snapshot."""
    lineage: tuple[SnapshotInfo, ...] = field(default=(), repr=False)
    """The snapshots that led to the current one, newest first."""
    compacted_at: datetime | None = None
    keeps_all_snapshots: bool = False
    retention_years: float | None = None
    """None also where the partitions do not show the age of their rows."""

    @property
    def average_bytes(self) -> int:
        return self.bytes // self.files if self.files else 0

    @property
    def oldest_snapshot_at(self) -> datetime | None:
        return self.lineage[-1].committed_at if self.lineage else None

    def body(self) -> dict[str, Any]:
        return {
            "table": self.table.removeprefix("main."),
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "average_bytes": self.average_bytes,
            "small_files": self.small_files,
            "delete_files": self.delete_files,
            "manifests": self.manifests,
            "manifests_read": self.manifests_read,
            "snapshots": self.snapshots,
            "oldest_snapshot_at": _text(self.oldest_snapshot_at),
            "metadata_files": self.metadata_files,
            "metadata_bytes": self.metadata_bytes,
            "last_compaction_at": _text(self.compacted_at),
        }


def health_of(
    table: LakeTable, *, small_below: int, compacted_at: datetime | None = None, max_manifests: int = MAX_MANIFESTS
) -> Health:
    """Count what the table consists of. `compacted_at` is what is known of a compaction whose snapshot has expired."""
    metadata = table.iceberg.metadata
    lineage = tuple(table.snapshots())
    compactions = [snapshot.committed_at for snapshot in lineage if snapshot.operation == "replace"]
    with translated(f"look at the files of {table.name}"):
        try:
            return _counted(
                table,
                small_below=small_below,
                max_manifests=max_manifests,
                snapshots=len(metadata.snapshots),
                metadata_files=len(metadata.metadata_log) + 1,
                lineage=lineage,
                compacted_at=max([*compactions, *([compacted_at] if compacted_at else [])], default=None),
                keeps_all_snapshots=table.spec.keep_snapshots == "all",
                retention_years=table.spec.retention_years if is_dated(table) else None,
            )
        except FileNotFoundError as error:
            raise Unavailable(
                f"{table.name} has moved on by many commits since it was looked at",
                code="table_moved_on",
                hint="try again",
            ) from error


def _counted(table: LakeTable, *, small_below: int, max_manifests: int, **known: Any) -> Health:
    io = table.iceberg.io
    current = table.iceberg.metadata.current_snapshot()
    manifests = list(current.manifests(io)) if current else []
    of_rows = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    of_deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    newest = sorted(of_rows, key=lambda manifest: -manifest.sequence_number)[:max_manifests]
    sizes = accumulate(manifest.manifest_length for manifest in newest)
    looked_at = [manifest for manifest, size in zip(newest, sizes, strict=True) if size <= MAX_MANIFEST_BYTES]
    files = [entry.data_file for manifest in looked_at for entry in manifest.fetch_manifest_entry(io)]
    small = Counter(repr(file.partition) for file in files if file.file_size_in_bytes < small_below)
    return Health(
        table=table.name,
        rows=table.rows,
        files=table.files,
        bytes=table.bytes,
        small_files=small.total(),
        small_by_partition=tuple(small.values()),
        delete_files=sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in of_deletes),
        manifests=len(manifests),
        manifests_read=len(looked_at),
        metadata_bytes=len(io.new_input(table.metadata_location)) + sum(m.manifest_length for m in manifests),
        **known,
    )


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
