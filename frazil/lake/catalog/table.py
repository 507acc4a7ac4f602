"""Lake table: one table at one moment, as its metadata file describes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from frazil.errors import DataLoss, Unavailable, WatermarkTorn
from frazil.events import conform
from frazil.events.declaration import TIMESTAMP, TableSpec, entity_of, parse_table

DECLARATION = "frazil.declaration"
STREAM = "frazil.stream"
IDENTITY = "frazil.stream-identity"
WATERMARK = "frazil.watermark"
WATERMARK_SEQUENCE = "frazil.watermark-sequence-number"
PREVIOUS_WATERMARK = "frazil.previous-watermark"
BATCH = "frazil.batch"
LOADS = "frazil.loads"
LOAD_POSITION = "frazil.load-position"
"""In the summary of a bulk load: the `_seq` of its rows."""
DROPPED_AT = "frazil.dropped-at"
HISTORY = "frazil.history-uuid"
"""In the base of an entity: the uuid of the history that it is folded from."""
FOLDED_ROWS = "frazil.folded-rows"
"""In the summary of a fold: how many rows the history had below its watermark."""

_IDS = pa.schema([("_id", pa.string()), ("_seq", pa.int64()), ("_received_at", TIMESTAMP)])


@dataclass(frozen=True)
class SnapshotInfo:
    snapshot_id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    added_rows: int
    total_rows: int
    watermark: int | None
    batch: str | None


@dataclass(frozen=True)
class LakeTable:
    """One table as of one metadata file. Never changes: load it again to see what has happened since."""

    name: str
    iceberg: Table

    @cached_property
    def uuid(self) -> str:
        return str(self.iceberg.metadata.table_uuid)

    @property
    def metadata_location(self) -> str:
        return self.iceberg.metadata_location

    @property
    def metadata_version(self) -> int:
        """How often the table was changed: the number that its metadata file begins with."""
        number = self.metadata_location.rpartition("/")[2].partition("-")[0]
        return int(number) if number.isdigit() else 0

    @property
    def properties(self) -> Mapping[str, str]:
        return self.iceberg.metadata.properties

    @cached_property
    def spec(self) -> TableSpec:
        return parse_table(msgspec.json.decode(self.properties[DECLARATION]))

    @property
    def token_name(self) -> str:
        """The name of the table in tokens: a history has the name of its entity."""
        return entity_of(self.name) if self.spec.kind == "history" else self.name

    @property
    def history_uuid(self) -> str | None:
        """Of the base of an entity: the history it belongs to."""
        return self.properties.get(HISTORY)

    @property
    def folded_rows(self) -> int:
        """Of the base of an entity: how many rows of the history are in it."""
        marked = self._newest_marked(self.iceberg.metadata.current_snapshot())
        return int(summary_of(marked).get(FOLDED_ROWS, 0)) if marked else 0

    @property
    def stream(self) -> str:
        return self.properties[STREAM]

    @property
    def stream_identity(self) -> str:
        return self.properties[IDENTITY]

    @property
    def loads(self) -> tuple[str, ...]:
        """The ids of the newest bulk loads, oldest first."""
        return tuple(self.properties.get(LOADS, "").split())

    @property
    def snapshot_id(self) -> int | None:
        return self.iceberg.metadata.current_snapshot_id

    @cached_property
    def watermark(self) -> int:
        """Every event below this position is in the table, and none at or above it.

        Written twice in each commit, into the table's properties and the snapshot's summary. A table whose two
        differ was not moved by frazil, and going on would lose or double rows: that is refused.
        """
        try:
            stated = int(self.properties[WATERMARK])
            newest_marked = int(self.properties.get(WATERMARK_SEQUENCE, 0))
        except (KeyError, ValueError) as error:
            raise WatermarkTorn(f"{self.name} has rows and no watermark", hint=self._repair) from error
        current = self.iceberg.metadata.current_snapshot()
        if current is None:
            if newest_marked:
                raise WatermarkTorn(f"{self.name} is at watermark {stated} and has no snapshot", hint=self._repair)
            return stated
        marked = self._newest_marked(current)
        rolled_back = (current.sequence_number or 0) < newest_marked
        differs = marked is not None and int(summary_of(marked)[WATERMARK]) != stated
        if rolled_back or differs:
            found = summary_of(marked)[WATERMARK] if marked else "none"
            raise WatermarkTorn(
                f"{self.name} states the watermark {stated}, its snapshot {current.snapshot_id} has {found}: "
                "it was rolled back or replaced by hand",
                hint=self._repair,
            )
        return stated

    @property
    def _repair(self) -> str:
        return f"decide which is right, then run `frazil repair watermark {self.spec.short_name}`"

    def _newest_marked(self, snapshot: Snapshot | None) -> Snapshot | None:
        """The newest ancestor that a commit of ours made; None where maintenance has expired them all."""
        while snapshot is not None and WATERMARK not in summary_of(snapshot):
            snapshot = self._snapshot(snapshot.parent_snapshot_id)
        return snapshot

    def marked_watermark(self, snapshot_id: int | None = None) -> int | None:
        """The watermark of the newest marked snapshot, whatever the property states."""
        at = self.snapshot_id if snapshot_id is None else snapshot_id
        marked = self._newest_marked(self._snapshot(at))
        return int(summary_of(marked)[WATERMARK]) if marked else None

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        return self.iceberg.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None

    def staged(self, batch: str) -> Snapshot | None:
        """The snapshot that was staged for this batch, published or not."""
        for snapshot in reversed(self.iceberg.metadata.snapshots):
            if summary_of(snapshot).get("wap.id") == batch:
                return snapshot
        return None

    def has_snapshot(self, snapshot_id: int) -> bool:
        return self._snapshot(snapshot_id) is not None

    @property
    def rows(self) -> int:
        return self._total("total-records")

    def rows_since(self, moment: datetime) -> int:
        """About how many rows were added since then: all of them, if no snapshot is so old."""
        at = moment.timestamp() * 1000
        older = [snapshot for snapshot in self.iceberg.metadata.snapshots if snapshot.timestamp_ms < at]
        before = int(summary_of(older[-1]).get("total-records", "0")) if older else 0
        return max(0, self.rows - before)

    @property
    def files(self) -> int:
        return self._total("total-data-files")

    @property
    def bytes(self) -> int:
        return self._total("total-files-size")

    def _total(self, name: str) -> int:
        current = self.iceberg.metadata.current_snapshot()
        return int(summary_of(current).get(name) or 0) if current else 0

    @property
    def last_commit_at(self) -> datetime | None:
        """When the newest snapshot was made; the watermark may have been reached by an earlier one."""
        current = self.iceberg.metadata.current_snapshot()
        return _time(current.timestamp_ms) if current else None

    def snapshots(self) -> list[SnapshotInfo]:
        """The snapshots that led to the current state, newest first."""
        found = []
        snapshot = self.iceberg.metadata.current_snapshot()
        while snapshot is not None:
            found.append(_info(snapshot))
            snapshot = self._snapshot(snapshot.parent_snapshot_id)
        return found

    def every_snapshot(self) -> list[SnapshotInfo]:
        """All that the metadata knows, oldest first: also what was only staged, and what lost its descendants."""
        return [_info(snapshot) for snapshot in self.iceberg.metadata.snapshots]

    def ids_since(self, received_at: datetime) -> Iterator[pa.RecordBatch]:
        """`_id`, `_seq` and `_received_at` of the events received since then; rows of bulk loads are none."""
        yield from self._scan(f"_seq >= 0 and _received_at >= '{received_at.isoformat()}'", _IDS)

    def rows_at(self, positions: Sequence[int]) -> pa.Table:
        """The rows at these positions, those that exist, ordered by `_seq`."""
        schema = self.spec.row_schema()
        wanted = sorted(set(positions))
        if not wanted:
            return schema.empty_table()
        # Rows lie in the order of the stream, so that a range of positions is one file or two.
        condition = f"_seq >= {wanted[0]} and _seq <= {wanted[-1]}"
        table = pa.Table.from_batches(list(self._scan(condition, schema)), schema=schema)
        found = table.filter(pc.is_in(table["_seq"], value_set=pa.array(wanted, pa.int64())))
        return found.sort_by("_seq")

    def scan(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the current snapshot, or some of their columns; all of them, or those of a condition."""
        schema = self.spec.row_schema()
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        yield from self._scan(where, schema)

    def _scan(self, condition: str | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self.snapshot_id is None:
            return
        scan = self.iceberg.scan(row_filter=condition or AlwaysTrue(), selected_fields=tuple(schema.names))
        try:
            for batch in scan.to_arrow_batch_reader():
                yield from conform(pa.Table.from_batches([batch]), schema).combine_chunks().to_batches()
        except FileNotFoundError as error:
            raise DataLoss(
                f"a file of {self.name} is missing",
                hint="restore the warehouse from its backup; `frazil doctor` names the file",
                details={"file": str(error.filename or error)},
            ) from error
        except OSError as error:
            raise Unavailable(
                f"cannot read {self.name}: {str(error).splitlines()[0][:200]}",
                code="lake_unavailable",
                hint="check that the warehouse can be reached",
            ) from error


def summary_of(snapshot: Snapshot) -> Mapping[str, Any]:
    if snapshot.summary is None:
        return {}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def _info(snapshot: Snapshot) -> SnapshotInfo:
    summary = summary_of(snapshot)
    return SnapshotInfo(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        committed_at=_time(snapshot.timestamp_ms),
        operation=str(summary.get("operation", "")),
        added_rows=int(summary.get("added-records") or 0),
        total_rows=int(summary.get("total-records") or 0),
        watermark=int(summary[WATERMARK]) if WATERMARK in summary else None,
        batch=summary.get(BATCH),
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
