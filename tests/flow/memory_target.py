"""A table in memory that is staged to, audited and published to as a table of the lake is.

`MemoryCatalog` stands for the catalog and the warehouse: it outlives the committers that crash around it, and offers
what maintenance and a careless hand can do to a table. `MemoryTarget` is one committer's way to it. Both take the same
steps, with the same names, as `SparkTarget`; `tests/contract/test_target.py` holds the two against each other.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from frazil.errors import Unavailable, WatermarkTorn
from frazil.events.declaration import TIMESTAMP, TableSpec
from frazil.lake.catalog import BATCH, WATERMARK
from frazil.lake.catalog.table import IDENTITY, STREAM, WATERMARK_SEQUENCE
from frazil.lake.commit import Outcome
from frazil.lake.commit.publish import AuditFailed, publish_outcome
from frazil.lake.derived import DeadLetter
from frazil.pipeline.commit.row_errors import RowsRefused
from frazil.pipeline.commit.target import Commit, TableState

Row = tuple[Any, ...]
CommitSteps = Generator[str, None, tuple[Outcome, TableState]]

_PUBLISH_TRIES = 5


class CatalogConflict(Exception):
    """The compare-and-swap was refused: a requirement does not hold any more."""


@dataclass(frozen=True)
class MemorySnapshot:
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    rows: tuple[Row, ...]
    added: int
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryTable:
    """The table as of one version of its metadata. Never changes."""

    name: str
    spec: TableSpec
    uuid: str
    properties: Mapping[str, str]
    snapshots: Mapping[int, MemorySnapshot] = field(default_factory=dict)
    snapshot_id: int | None = None
    last_sequence: int = 0

    @property
    def stream(self) -> str:
        return self.properties[STREAM]

    @property
    def stream_identity(self) -> str:
        return self.properties[IDENTITY]

    @property
    def current(self) -> MemorySnapshot | None:
        return self.snapshots[self.snapshot_id] if self.snapshot_id is not None else None

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.current.rows if self.current else ()

    @property
    def watermark(self) -> int:
        stated = int(self.properties[WATERMARK])
        newest_marked = int(self.properties.get(WATERMARK_SEQUENCE, 0))
        if self.current is None:
            if newest_marked:
                raise WatermarkTorn(f"{self.name} is at watermark {stated} and has no snapshot")
            return stated
        marked = self.marked_watermark()
        if self.current.sequence_number < newest_marked or marked not in (None, stated):
            raise WatermarkTorn(f"{self.name} states the watermark {stated}, its snapshot has {marked}")
        return stated

    def marked_watermark(self) -> int | None:
        """The watermark of the newest ancestor that a commit made; None where all of them have expired."""
        marks = (snapshot.summary.get(WATERMARK) for snapshot in self.ancestors())
        return next((int(mark) for mark in marks if mark is not None), None)

    def ancestors(self) -> Iterator[MemorySnapshot]:
        """The current snapshot and those before it, newest first, as far as they have not expired."""
        snapshot = self.current
        while snapshot is not None:
            yield snapshot
            snapshot = self.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None

    def has_snapshot(self, snapshot_id: int) -> bool:
        return snapshot_id in self.snapshots

    def staged(self, batch: str) -> MemorySnapshot | None:
        return next((s for s in reversed(list(self.snapshots.values())) if s.summary.get("wap.id") == batch), None)


class MemoryCatalog:
    """Catalog and warehouse: every change is one swap of the table's metadata."""

    def __init__(self, spec: TableSpec, *, stream: str, identity: str, watermark: int) -> None:
        properties = {STREAM: stream, IDENTITY: identity, WATERMARK: str(watermark)}
        self.table = MemoryTable(spec.name, spec, "uuid-1", properties)
        self.faults: list[str] = []
        """What goes wrong next, once each: `load`, `stage`, `stage_reply`, `publish` or `publish_reply`."""
        self.poison: Callable[[str], bool] = lambda event_id: False
        """Rows with these ids cannot be staged."""
        self.max_rows: int | None = None
        """More rows at once cannot be staged."""
        self.letters: list[DeadLetter] = []
        self._ids = itertools.count(1)

    def load(self) -> MemoryTable:
        self.fail("load")
        return self.table

    def stage(self, rows: pa.Table, *, wap_id: str, summary: Mapping[str, str]) -> None:
        """Append the rows as a snapshot that nobody sees yet."""
        self.fail("stage")
        if bad := [event_id for event_id in rows["_id"].to_pylist() if self.poison(event_id)]:
            raise RowsRefused(f"rows that no file can hold: {bad}")
        if self.max_rows is not None and rows.num_rows > self.max_rows:
            raise RowsRefused(f"{rows.num_rows} rows are too many")
        new = tuple(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
        self._add(self.table.rows + new, len(new), {"wap.id": wap_id, **summary})
        self.fail("stage_reply")

    def swap(self, *, uuid: str, main: int | None, to: int, properties: Mapping[str, str]) -> None:
        """Set main and properties at once, if the table is this one and main is still there."""
        self.fail("publish")
        table = self.table
        if table.uuid != uuid or table.snapshot_id != main or not table.has_snapshot(to):
            raise CatalogConflict(f"main is at {table.snapshot_id}, not at {main}")
        self.table = replace(table, snapshot_id=to, properties={**table.properties, **properties})
        self.fail("publish_reply")

    def compact(self) -> None:
        """The same rows in other files: a snapshot without a mark."""
        if self.table.current is not None:
            compacted = self._add(self.table.rows, 0, {})
            self.table = replace(self.table, snapshot_id=compacted)

    def expire(self, number: int) -> None:
        """Drop so many of the oldest snapshots, staged ones too, but never the current one."""
        old = [key for key in self.table.snapshots if key != self.table.snapshot_id][:number]
        kept = {key: snapshot for key, snapshot in self.table.snapshots.items() if key not in old}
        self.table = replace(self.table, snapshots=kept)

    def forget(self, wap_id: str) -> None:
        """Drop what was staged under this id."""
        kept = {key: s for key, s in self.table.snapshots.items() if s.summary.get("wap.id") != wap_id}
        self.table = replace(self.table, snapshots=kept)

    def roll_back(self, snapshot_id: int) -> None:
        """What a hand does that knows nothing of watermarks."""
        self.table = replace(self.table, snapshot_id=snapshot_id)

    def fail(self, what: str) -> None:
        if what in self.faults:
            self.faults.remove(what)
            raise Unavailable(f"the lake gave no answer: {what}", code="lake_unavailable")

    def _add(self, rows: tuple[Row, ...], added: int, summary: Mapping[str, str]) -> int:
        table, number = self.table, next(self._ids)
        snapshot = MemorySnapshot(number, table.snapshot_id, table.last_sequence + 1, rows, added, summary)
        snapshots = {**table.snapshots, number: snapshot}
        self.table = replace(table, snapshots=snapshots, last_sequence=snapshot.sequence_number)
        return number


class MemoryTarget:
    """`Target` over a `MemoryCatalog`."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self.catalog = catalog
        self._loaded: MemoryTable | None = None

    def load(self) -> MemoryTable:
        self._loaded = self.catalog.load()
        return self._loaded

    def ids_since(self, received_at: datetime) -> Iterator[pa.RecordBatch]:
        """As of the last `load`, as `SparkTarget` has it."""
        schema = pa.schema([("_id", pa.string()), ("_seq", pa.int64()), ("_received_at", TIMESTAMP)])
        table = self._loaded or self.load()
        columns = [table.spec.row_schema().names.index(name) for name in schema.names]
        found = [dict(zip(schema.names, (row[column] for column in columns), strict=True)) for row in table.rows]
        yield pa.RecordBatch.from_pylist([row for row in found if row["_received_at"] >= received_at], schema=schema)

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        steps = self.commit_steps(base, commit)
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                outcome: tuple[Outcome, TableState] = finished.value
                return outcome

    def commit_steps(self, base: TableState, commit: Commit) -> CommitSteps:
        """The commit with a stop at each crash point that `SparkTarget.commit` and `publish` have, in their order."""
        table = base if isinstance(base, MemoryTable) else self.load()
        yield "before_stage"
        self.catalog.stage(commit.rows, wap_id=commit.batch, summary=commit.summary())
        yield "after_stage_before_publish"
        staged = self.catalog.load()
        if staged.snapshot_id != table.snapshot_id:
            return Outcome.STAGE_AGAIN, staged
        snapshot = self.audit(table, staged, commit)
        yield "after_audit_before_publish"
        outcome = yield from self.publish(table, snapshot, commit.watermark)
        yield "after_publish_before_trim"
        return outcome

    def audit(self, base: MemoryTable, staged: MemoryTable, commit: Commit) -> MemorySnapshot:
        snapshot = staged.staged(commit.batch)
        if snapshot is None:
            raise AuditFailed(f"nothing was staged for batch {commit.batch}")
        if snapshot.summary[BATCH] != commit.batch or snapshot.added != commit.rows.num_rows:
            raise AuditFailed(f"batch {commit.batch} has other rows than were staged")
        if snapshot.parent_id != base.snapshot_id:
            raise AuditFailed(f"batch {commit.batch} was staged on another snapshot than the one it was read at")
        return snapshot

    def publish(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> CommitSteps:
        for _ in range(_PUBLISH_TRIES):
            current = self.catalog.load()
            outcome = publish_outcome(current, base, snapshot.snapshot_id, watermark)
            if outcome is not None:
                return outcome, current
            yield "before_publish"
            # Refused, it lost the race; without an answer, the outcome is unknown. Either way the table tells.
            with contextlib.suppress(CatalogConflict, Unavailable):
                self.swap(base, snapshot, watermark)
            yield "after_publish_before_reload"
        raise Unavailable(f"cannot publish to {base.name}", code="publish_failed")

    def swap(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> None:
        mark = {WATERMARK: str(watermark), WATERMARK_SEQUENCE: str(snapshot.sequence_number)}
        self.catalog.swap(uuid=base.uuid, main=base.snapshot_id, to=snapshot.snapshot_id, properties=mark)

    def attempt(self, rows: pa.Table) -> None:
        self.catalog.stage(rows, wap_id="attempt", summary={BATCH: "attempt"})

    def forget_attempts(self) -> None:
        self.catalog.forget("attempt")

    def dead_positions(self, base: TableState) -> set[int]:
        return {letter.position for letter in self.catalog.letters if letter.position >= base.watermark}

    def add_dead_letters(self, base: TableState, letters: Sequence[DeadLetter]) -> int:
        steps = self.dead_letter_steps(base, letters)
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                return int(finished.value)

    def dead_letter_steps(self, base: TableState, letters: Sequence[DeadLetter]) -> Generator[str, None, int]:
        """With a stop at each crash point of `lake.add_dead_letters`."""
        known = self.dead_positions(base)
        new = [letter for letter in letters if letter.position not in known]
        if not new:
            return 0
        yield "before_dead_letters_publish"
        moved = self.catalog.load().watermark != base.watermark
        if moved or {letter.position for letter in new} & self.dead_positions(base):
            raise Unavailable(f"another committer is at work on {base.name}", code="superseded")
        self.catalog.letters = [*self.catalog.letters, *new]
        yield "after_dead_letters_publish"
        return len(new)

    def tidy(self, *, keep_snapshots: int) -> int:
        ancestors = list(self.load().ancestors())
        if len(ancestors) <= keep_snapshots + keep_snapshots // 4:
            return 0
        oldest_kept = ancestors[keep_snapshots - 1].snapshot_id
        self.catalog.expire(sum(1 for key in self.catalog.table.snapshots if key < oldest_kept))
        return len(ancestors) - len(list(self.load().ancestors()))
