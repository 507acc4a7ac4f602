"""Row removal: one commit removes whole files of expired rows, then the snapshots that held them expire.

No row is rewritten. The commit holds for the table as it is at that moment, and finds nothing the second time. Files go
only after the commit that forgot the last snapshot which named them: a kill in between leaves them to the search for
orphans.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Literal

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, ValidatableTableRequirement

from frazil.crash import crash_point
from frazil.lake.catalog.iceberg_files import path_of
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import BATCH, LakeTable
from frazil.lake.maintenance.row_retention import RetentionPlan, expired_files, plan_retention


class _AssertRefs(ValidatableTableRequirement):
    """No tag or branch came, went or moved: what one names now may be what is about to go."""

    type: Literal["assert-refs"] = Field(default="assert-refs")
    refs: dict[str, int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or _refs(base_metadata) != self.refs:
            raise CommitFailedException("tags or branches have changed")


def apply_retention(
    lake: Lake, name: str, *, today: date, keep_seconds: float, all_snapshots: bool = False
) -> dict[str, Any]:
    """Remove what is beyond its years on this day, and expire the snapshots that go with it. Safe to repeat."""
    planned = partial(
        plan_retention, today=today, now=datetime.now(UTC), keep_seconds=keep_seconds, all_snapshots=all_snapshots
    )
    plan = planned(lake.table(name))
    crash_point("before_removal")
    table = _remove(lake, name, plan)
    crash_point("after_removal")
    # As the table is now: its last snapshot no longer holds old rows, and the one before it has become a holder.
    after = planned(table)
    deleted = _expire(lake, table, after.expiring) if after.expiring else 0
    return {
        "cut": plan.cut.isoformat(),
        "rows": plan.rows,
        "files": plan.files,
        "partitions": len(plan.partitions),
        "snapshots_expired": len(after.expiring),
        "snapshots_holding": len(after.holding),
        "files_deleted": deleted,
    }


def _remove(lake: Lake, name: str, plan: RetentionPlan) -> LakeTable:
    def apply(current: LakeTable) -> bool:
        files = expired_files(current, plan.cut)
        if not files:
            return False
        summary = {BATCH: f"retention-{plan.cut.date().isoformat()}"}
        with (
            current.iceberg.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=summary).overwrite() as producer,
        ):
            for file in files:
                producer.delete_data_file(file)
        return True

    return lake.update_table(name, apply)


def _expire(lake: Lake, table: LakeTable, snapshots: Sequence[int]) -> int:
    """Forget these snapshots, then delete what only they named; returns how many files that were."""
    metadata = table.iceberg.metadata
    going = set(snapshots)
    with translated(f"expire snapshots of {table.name}"):
        named = _named_files(table, going)
        staying = _named_files(table, {known.snapshot_id for known in metadata.snapshots} - going)
        try:
            lake.catalog.commit_table(
                table.iceberg,
                (AssertTableUUID(uuid=metadata.table_uuid), _AssertRefs(refs=_refs(metadata))),  # type: ignore[arg-type]
                (RemoveSnapshotsUpdate(snapshot_ids=list(going)),),  # type: ignore[call-arg]
            )
        except (CommitFailedException, ValueError):
            return 0  # another commit came first, or expired them: what is left is found the next time
        crash_point("after_removal_expiry")
        deleted = 0
        for location in sorted(named[path] for path in named.keys() - staying.keys()):
            with suppress(FileNotFoundError):
                table.iceberg.io.delete(location)
                deleted += 1
            crash_point("amid_removal_files")
    return deleted


def _named_files(table: LakeTable, snapshots: set[int]) -> dict[str, str]:
    """Every file that these snapshots lead to, lists, manifests and data: its address by its path."""
    io = table.iceberg.io
    found: set[str] = set()
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.iceberg.metadata.snapshots:
        if snapshot.snapshot_id in snapshots:
            found.add(snapshot.manifest_list)
            manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    for path, manifest in manifests.items():
        found |= {path, *(e.data_file.file_path for e in manifest.fetch_manifest_entry(io, discard_deleted=True))}
    return {path_of(location): location for location in found}


def _refs(metadata: TableMetadata) -> dict[str, int]:
    """All names but main, which commits move all the time."""
    return {name: ref.snapshot_id for name, ref in metadata.refs.items() if name != "main"}
