"""Publish: one compare-and-swap that makes a staged snapshot the table's state and moves the watermark with it.

The caller names the table state that it started from. The swap goes through only if the main branch is still
there; the new watermark is in the same commit, so that rows and watermark are never seen apart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    ValidatableTableRequirement,
)

from frazil.crash import crash_point
from frazil.errors import FrazilError, Unavailable
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import WATERMARK, WATERMARK_SEQUENCE, LakeTable, summary_of
from frazil.storage import local_path, sync_files

log = logging.getLogger(__name__)
_TRIES = 5


class Outcome(Enum):
    PUBLISHED = "published"
    ALREADY_DONE = "already_done"
    """The watermark is where we wanted it: this range was committed before, by us or by another."""
    STAGE_AGAIN = "stage_again"
    """The table moved on without these events (maintenance, a rollback of the stage): same range, new stage."""
    SUPERSEDED = "superseded"
    """Another committer is at work on this table: our range is not the next one any more."""


@dataclass(frozen=True)
class PublishResult:
    outcome: Outcome
    table: LakeTable
    """The table as it is after the attempt."""


class AuditFailed(FrazilError):
    """A staged snapshot differs from its batch; nothing was published."""

    code = "audit_failed"
    transient = True


def audit(base: LakeTable, staged: LakeTable, batch: str, *, rows: int) -> Snapshot:
    """The snapshot staged for this batch, checked against the batch."""
    snapshot = staged.staged(batch)
    if snapshot is None:
        raise AuditFailed(f"nothing was staged for batch {batch}")
    added = int(summary_of(snapshot).get("added-records") or 0)
    if added != rows:
        raise AuditFailed(f"batch {batch} has {rows} rows and {added} were staged")
    if snapshot.parent_snapshot_id != base.snapshot_id:
        raise AuditFailed(f"batch {batch} was staged on another snapshot than the one it was read at")
    return snapshot


def make_durable(staged: LakeTable, snapshot: Snapshot) -> None:
    """Flush what the snapshot adds to a local disk. On an object store there is nothing to do."""
    if snapshot.manifest_list.startswith("s3:"):
        return
    files = [snapshot.manifest_list, staged.metadata_location]
    for manifest in snapshot.manifests(staged.iceberg.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            files.append(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(staged.iceberg.io)
            files += [entry.data_file.file_path for entry in entries if entry.snapshot_id == snapshot.snapshot_id]
    sync_files(files, below=staged.iceberg.location())


class PublishState(Protocol):
    """What decides about a publish: the lake and the simulation of it have this in common."""

    @property
    def uuid(self) -> str: ...
    @property
    def watermark(self) -> int: ...
    @property
    def snapshot_id(self) -> int | None: ...
    def has_snapshot(self, snapshot_id: int) -> bool: ...


def publish_outcome(current: PublishState, base: PublishState, staged: int, watermark: int) -> Outcome | None:
    """How a staged snapshot stands against the table as it is now; None when it may be published."""
    if current.uuid != base.uuid:
        return Outcome.SUPERSEDED
    if current.watermark >= watermark:
        return Outcome.PUBLISHED if current.snapshot_id == staged else Outcome.ALREADY_DONE
    if current.watermark != base.watermark:
        return Outcome.SUPERSEDED
    if current.snapshot_id != base.snapshot_id or not current.has_snapshot(staged):
        return Outcome.STAGE_AGAIN
    return None


class AssertWatermark(ValidatableTableRequirement):
    """The watermark must be what it was: a repair may move it without a new snapshot."""

    type: str = "assert-frazil-watermark"
    watermark: str

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        found = None if base_metadata is None else base_metadata.properties.get(WATERMARK)
        if found != self.watermark:
            raise CommitFailedException(f"the watermark has moved: expected {self.watermark}, found {found}")


def publish_stage(
    lake: Lake, base: LakeTable, snapshot: Snapshot, watermark: int, *, staged: LakeTable | None = None
) -> PublishResult:
    """Make the staged snapshot current and set the watermark, if the table is still as it was at `base`.

    `staged` is the table as it was loaded after staging, if the caller has it: the swap asserts what was read from it,
    so that the table is not loaded again where the swap goes through. After a lost answer the table is
    loaded again, and its state decides.
    """
    failure: Exception | None = None
    for attempt in range(_TRIES + 1):
        current = staged if staged is not None and failure is None else lake.table(base.name)
        outcome = publish_outcome(current, base, snapshot.snapshot_id, watermark)
        if outcome is not None:
            return PublishResult(outcome, current)
        if attempt == _TRIES:
            break  # looked once more after the last try: it did not take effect
        crash_point("before_publish")
        try:
            with translated(f"publish to {base.name}"):
                response = lake.catalog.commit_table(
                    current.iceberg,
                    (  # type: ignore[arg-type]  # any requirement that validates itself is one of this catalog's
                        AssertTableUUID(uuid=current.iceberg.metadata.table_uuid),
                        AssertRefSnapshotId(ref="main", snapshot_id=base.snapshot_id),  # type: ignore[call-arg]
                        AssertWatermark(watermark=str(base.watermark)),
                    ),
                    (
                        SetSnapshotRefUpdate(  # type: ignore[call-arg]
                            ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
                        ),
                        SetPropertiesUpdate(
                            updates={
                                WATERMARK: str(watermark),
                                WATERMARK_SEQUENCE: str(snapshot.sequence_number or 0),
                            }
                        ),
                    ),
                )
                crash_point("after_publish_before_reload")
                _forget_old_metadata(current, response.metadata)
            return PublishResult(Outcome.PUBLISHED, _as_committed(current, response))
        except (CommitFailedException, Unavailable, ValueError) as error:
            # Lost the race, or the outcome is unknown, or (ValueError) the stage has just been expired: look again.
            failure = error
    raise Unavailable(
        failure.message if isinstance(failure, Unavailable) else f"cannot publish to {base.name}: {failure}",
        code="publish_failed",
        hint="it is tried again; if it stays, check that the catalog's database and the warehouse can be reached",
    ) from failure


def _as_committed(current: LakeTable, response: CommitTableResponse) -> LakeTable:
    """The table as the catalog says that the swap has left it."""
    before = current.iceberg
    return LakeTable(
        current.name, Table(before.name(), response.metadata, response.metadata_location, before.io, before.catalog)
    )


def _forget_old_metadata(base: LakeTable, committed: TableMetadata) -> None:
    """Delete the metadata files that this commit pushed out of the table's log, as Spark does after its own commits.

    Nobody does it later: at one commit a second this would be gigabytes a day. One that stays costs its space.
    """
    logged = {entry.metadata_file for entry in committed.metadata_log}
    for entry in base.iceberg.metadata.metadata_log:
        if entry.metadata_file not in logged:
            try:
                base.iceberg.io.delete(entry.metadata_file)
                _forget_checksum(entry.metadata_file)
            except OSError as error:
                log.warning(
                    "deletion of old metadata failed: %s: %s", entry.metadata_file, error, extra={"table": base.name}
                )


def _forget_checksum(url: str) -> None:
    """Hadoop's local file system writes a checksum beside each file; who deletes one without Hadoop deletes both."""
    if not url.startswith("s3:"):
        path = local_path(url)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
