"""Load commit: the files that the tasks of a bulk load wrote become rows of the table in one commit, exactly once.

A load has an id. The table keeps the ids of its newest loads in a property, written by the commit that adds the rows,
so that a second try, after a crash or beside a paused process, finds that it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot

from frazil.crash import crash_point
from frazil.errors import Conflict
from frazil.events import first_position
from frazil.lake.bulk.data_files import WrittenFile
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import BATCH, LOAD_POSITION, LOADS, WATERMARK, LakeTable, summary_of
from frazil.lake.commit.publish import AuditFailed

_REMEMBERED = 64
_FIRST_LOAD = -(1 << 62)


def load_position(started_at: datetime) -> int:
    """The `_seq` of all rows of a load: below every position of a stream, and in the order of the loads."""
    return _FIRST_LOAD + int(started_at.timestamp() * 1_000_000)


class Replaces(Enum):
    """The rows that a load replaces in the commit that adds its own."""

    NOTHING = "nothing"
    ALL = "all"
    PARTITION = "partition"


@dataclass(frozen=True)
class Load:
    id: str
    rows: int
    """How many rows the job says it wrote; the audit compares."""
    replaces: Replaces = Replaces.NOTHING
    partition: Mapping[str, date | str | int] | None = None
    """The partition that is replaced, by identity columns."""
    summary: Mapping[str, str] | None = None
    """Further fields of the snapshot's summary."""
    position: int | None = None
    """The `_seq` of its rows, if they have one."""
    properties: Mapping[str, str | None] | None = None
    """Properties of the table that the same commit sets; None removes one."""


@dataclass(frozen=True)
class LoadResult:
    table: LakeTable
    snapshot_id: int | None
    """The snapshot that the load made; None where it has been expired since."""
    is_new: bool
    """False if the load was found to be done already."""


def audit_load(load: Load, files: Sequence[WrittenFile]) -> None:
    """Check that the files hold as many rows as the job wrote, by their own footers."""
    described = sum(file.unpacked().record_count for file in files)
    written = sum(file.rows for file in files)
    if not described == written == load.rows:
        raise AuditFailed(
            f"load {load.id} has {load.rows} rows, its tasks wrote {written} and the files hold {described}"
        )


def publish_load(
    lake: Lake,
    name: str,
    load: Load,
    files: Sequence[WrittenFile],
    *,
    check: Callable[[LakeTable], None] | None = None,
) -> LoadResult:
    """Make the files part of the table, if this load is not in it yet. A commit of others in between is no conflict,
    unless `check` says so: it is given the very table that the files are about to be added to, and may raise."""
    audit_load(load, files)
    crash_point("before_load_publish")
    added = [file.unpacked() for file in files]
    is_new = False

    def apply(current: LakeTable) -> bool:
        nonlocal is_new
        if load.id in current.loads:
            return False
        if check is not None:
            check(current)
        removed = _replaced(current, load)
        summary = {BATCH: load.id, WATERMARK: str(current.watermark), **(load.summary or {})}
        if load.position is not None:
            summary[LOAD_POSITION] = str(load.position)
        with current.iceberg.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=summary)
            with update.overwrite() if removed else update.fast_append() as producer:
                for file in removed:
                    producer.delete_data_file(file)
                for file in added:
                    producer.append_data_file(file)
            _remember(transaction, current, load)
        is_new = True
        return True

    table = lake.update_table(name, apply)
    crash_point("after_load_publish")
    made = loaded_snapshot(table, load.id)
    return LoadResult(table, made.snapshot_id if made else None, is_new)


def _remember(transaction: Transaction, current: LakeTable, load: Load) -> None:
    properties = load.properties or {}
    set_by_load = {name: value for name, value in properties.items() if value is not None}
    transaction.set_properties({LOADS: " ".join((*current.loads, load.id)[-_REMEMBERED:]), **set_by_load})
    if gone := [name for name, value in properties.items() if value is None and name in current.properties]:
        transaction.remove_properties(*gone)


def loaded_snapshot(table: LakeTable, load_id: str) -> Snapshot | None:
    for snapshot in reversed(table.iceberg.metadata.snapshots):
        if summary_of(snapshot).get(BATCH) == load_id:
            return snapshot
    return None


def _replaced(table: LakeTable, load: Load) -> list[DataFile]:
    """The files that the load takes the place of."""
    current = table.iceberg.metadata.current_snapshot()
    if load.replaces is Replaces.NOTHING or current is None:
        return []
    if load.replaces is Replaces.ALL and table.spec.kind == "log" and table.watermark > first_position(1):
        raise Conflict(
            f"{table.spec.short_name!r} has events that were published to it: a load does not replace those",
            code="table_has_events",
            hint="append instead, or load into another table",
        )
    wanted = _partition_test(table, load)
    with translated(f"read the files of {table.name}"):
        return [
            entry.data_file
            for manifest in current.manifests(table.iceberg.io)
            for entry in manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True)
            if wanted(entry.data_file)
        ]


def _partition_test(table: LakeTable, load: Load) -> Callable[[DataFile], bool]:
    if load.replaces is Replaces.ALL:
        return lambda file: True
    specs = table.iceberg.metadata.specs()
    wanted = {column: _stored(value) for column, value in (load.partition or {}).items()}
    assert wanted, "a load that replaces a partition says which"

    def matches(file: DataFile) -> bool:
        names = [part.name for part in specs[file.spec_id].fields]
        return all(file.partition[names.index(column)] == value for column, value in wanted.items())

    return matches


def _stored(value: Any) -> Any:
    """As manifests have it: a date is the number of its day."""
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
