"""Row retention: the partitions whose rows are all older than the cut, and the snapshots that still hold them.

A table says by `retention_years` how long it keeps rows, and by its partitions which files hold which time. A file that
straddles the cut stays until all of it is beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform
from pyiceberg.types import DateType, IcebergType, TimestamptzType

from frazil.errors import InvalidInput
from frazil.events.declaration import TableSpec
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable, SnapshotInfo
from frazil.lake.maintenance.snapshot_expiry import named_snapshots, needed_by_readers

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class OldPartition:
    """One partition all of whose rows are beyond their years."""

    begins: datetime
    ends: datetime
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class RetentionPlan:
    table: str
    years: float
    column: str
    cut: datetime
    """Rows from before this moment are beyond their years."""
    partitions: tuple[OldPartition, ...]
    """Of the table as it is: what a removal takes away."""
    expiring: tuple[int, ...]
    """Snapshots that hold such rows, and that go with a removal."""
    holding: tuple[int, ...]
    """Snapshots that hold such rows and stay: the rows can be read there until these are expired too."""
    tags: tuple[str, ...]
    """Tags and branches among what stays: somebody wanted that kept."""

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    @property
    def files(self) -> int:
        return sum(partition.files for partition in self.partitions)

    def body(self) -> dict[str, Any]:
        return {
            "table": self.table.removeprefix("main."),
            "retention_years": self.years,
            "column": self.column,
            "cut": self.cut.isoformat(),
            "rows": self.rows,
            "files": self.files,
            "bytes": sum(partition.bytes for partition in self.partitions),
            "partitions": [
                {**vars(partition), "begins": partition.begins.isoformat(), "ends": partition.ends.isoformat()}
                for partition in self.partitions
            ],
            "expiring_snapshots": list(self.expiring),
            "holding_snapshots": list(self.holding),
            "holding_tags": list(self.tags),
        }


def no_retention(spec: TableSpec) -> InvalidInput:
    return InvalidInput(
        f"{spec.short_name!r} keeps its rows for ever",
        code="no_retention",
        hint=f"set the years: frazil tables alter {spec.short_name} --retention-years 10",
    )


def retention_cutoff(years: float, today: date) -> datetime:
    """The beginning of the day, so many years ago; of the 29th of February it is the 28th."""
    whole = int(years)
    day = min(today.day, 28) if today.month == 2 else today.day
    then = date(max(1, today.year - whole), today.month, day) - timedelta(days=round((years - whole) * 365.25))
    return datetime(then.year, then.month, then.day, tzinfo=UTC)


def plan_retention(
    table: LakeTable, *, today: date, now: datetime, keep_seconds: float, all_snapshots: bool = False
) -> RetentionPlan:
    """What is beyond its years on this day. With `all_snapshots` also the younger snapshots that hold such rows go."""
    if table.spec.retention_years is None:
        raise no_retention(table.spec)
    cut = retention_cutoff(table.spec.retention_years, today)
    span = _span_of(table)
    with translated(f"look for old rows of {table.name}"):
        files = [file for file in current_files(table) if is_expired(span(file), cut)]
        holders = _holders(table, lambda file: is_expired(span(file), cut))
    expiring = _expiring(table, holders, before=None if all_snapshots else cut, keep_seconds=keep_seconds, now=now)
    refs = table.iceberg.metadata.refs.items()
    staying = [known.snapshot_id for known in holders if known.snapshot_id not in expiring]
    return RetentionPlan(
        table=table.name,
        years=table.spec.retention_years,
        column=_time_field(table)[0],
        cut=cut,
        partitions=_by_partition(files, span),
        expiring=tuple(expiring),
        holding=tuple(known for known in staying if known != table.snapshot_id),
        tags=tuple(sorted(name for name, ref in refs if name != "main" and ref.snapshot_id in staying)),
    )


def expired_files(table: LakeTable, cut: datetime) -> list[DataFile]:
    """The files of the table as it is, all of whose rows are from before the cut."""
    span = _span_of(table)
    with translated(f"look for old rows of {table.name}"):
        return [file for file in current_files(table) if is_expired(span(file), cut)]


def current_files(table: LakeTable) -> Iterator[DataFile]:
    current = table.iceberg.metadata.current_snapshot()
    for manifest in current.manifests(table.iceberg.io) if current else ():
        yield from _files(table, manifest)


def _files(table: LakeTable, manifest: ManifestFile) -> Iterator[DataFile]:
    if manifest.content == ManifestContent.DATA:
        for entry in manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True):
            yield entry.data_file


Span = tuple[datetime, datetime]


def is_expired(span: Span | None, cut: datetime) -> bool:
    return span is not None and span[1] <= cut


def is_dated(table: LakeTable) -> bool:
    """Whether the partitions of the table show the age of their rows."""
    return _dated_column(table) is not None


def _dated_column(table: LakeTable) -> str | None:
    for part in table.spec.partition:
        kind = table.iceberg.schema().find_field(part.column).field_type
        by_itself = part.transform == "identity" and isinstance(kind, DateType | TimestamptzType)
        if by_itself or part.transform in ("day", "month", "hour"):
            return part.column
    return None


def _time_field(table: LakeTable) -> tuple[str, int]:
    """The column by whose time rows grow old, and its field id: that of the first partition by time."""
    column = _dated_column(table)
    if column is not None:
        return column, table.iceberg.schema().find_field(column).field_id
    raise InvalidInput(
        f"the partitions of {table.spec.short_name!r} have no time, so the age of a file is unknown",
        code="no_time_partition",
        hint="retention needs a partition by a date or timestamp: `dt`, day(at) or month(at)",
    )


def _span_of(table: LakeTable) -> Callable[[DataFile], Span | None]:
    """For a file, the time that its partition spans, first moment and end; None where it says nothing of it."""
    metadata: TableMetadata = table.iceberg.metadata
    _, source = _time_field(table)
    kind = metadata.schema().find_field(source).field_type
    specs = metadata.specs()

    def span(file: DataFile) -> Span | None:
        for at, field in enumerate(specs[file.spec_id].fields):
            if field.source_id == source and (value := file.partition[at]) is not None:
                return _span(field, kind, value)
        return None

    return span


def _span(field: PartitionField, kind: IcebergType, value: Any) -> Span | None:
    """The values of a partition as manifests have them: numbers of days, months, hours or microseconds since 1970."""
    number = (value - date(1970, 1, 1)).days if isinstance(value, date) else int(value)
    transform = field.transform
    if isinstance(transform, DayTransform) or (isinstance(transform, IdentityTransform) and isinstance(kind, DateType)):
        return _EPOCH + timedelta(days=number), _EPOCH + timedelta(days=number + 1)
    if isinstance(transform, MonthTransform):
        return _month(number), _month(number + 1)
    if isinstance(transform, HourTransform):
        return _EPOCH + timedelta(hours=number), _EPOCH + timedelta(hours=number + 1)
    if isinstance(transform, IdentityTransform):
        return _EPOCH + timedelta(microseconds=number), _EPOCH + timedelta(microseconds=number + 1)
    return None


def _month(number: int) -> datetime:
    return datetime(1970 + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _by_partition(files: Sequence[DataFile], span: Callable[[DataFile], Span | None]) -> tuple[OldPartition, ...]:
    found: dict[Span, OldPartition] = {}
    for file in files:
        at = span(file)
        assert at is not None
        known = found.get(at, OldPartition(*at, 0, 0, 0))
        size = known.bytes + file.file_size_in_bytes
        found[at] = OldPartition(*at, known.rows + file.record_count, known.files + 1, size)
    return tuple(found[at] for at in sorted(found))


def _holders(table: LakeTable, wanted: Callable[[DataFile], bool]) -> list[SnapshotInfo]:
    """The snapshots that name a file that is wanted. Each manifest is read once, however many snapshots share it."""
    judged: dict[str, bool] = {}
    holders = []
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.iceberg.metadata.snapshots}
    for known in table.every_snapshot():
        for manifest in by_id[known.snapshot_id].manifests(table.iceberg.io):
            if manifest.manifest_path not in judged:
                judged[manifest.manifest_path] = any(wanted(file) for file in _files(table, manifest))
            if judged[manifest.manifest_path]:
                holders.append(known)
                break
    return holders


def _expiring(
    table: LakeTable, holders: Sequence[SnapshotInfo], *, before: datetime | None, keep_seconds: float, now: datetime
) -> list[int]:
    """Those that may go. The current one stays, the newest marked one and all since, what a tag or a branch names, and
    what a reader or a commit of the last `keep_seconds` needs.
    """
    every = table.every_snapshot()
    needed = named_snapshots(table, every) | needed_by_readers(every, keep_seconds=keep_seconds, now=now)
    for snapshot in table.snapshots():
        needed.add(snapshot.snapshot_id)
        if snapshot.watermark is not None:
            break
    recent = now - timedelta(seconds=keep_seconds)
    limit = recent if before is None else min(before, recent)
    return [known.snapshot_id for known in holders if known.committed_at < limit and known.snapshot_id not in needed]
