"""Table cut: the one state of a table that an answer is read from.

A live cut is a snapshot and the tail above its watermark. Both are taken at one moment on the event loop, from a tail
that has no hole between the two: a commit that moves rows from one to the other in between changes neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from frazil.errors import Unavailable
from frazil.events import Token
from frazil.lake.catalog import LakeTable, SnapshotInfo, columns_at
from frazil.tables.directory import source_of
from frazil.tables.live_tail import LiveTail


class CutMoved(Unavailable):
    """The table changed while it was read: find it again."""

    code = "cut_moved"

    @classmethod
    def of(cls, short_name: str) -> CutMoved:
        return cls(f"{short_name!r} is changing", hint="try again")


@dataclass(frozen=True)
class Reach:
    """How far a table has come."""

    table: LakeTable
    """The log, or the history of the entity."""
    is_entity: bool
    end: int
    """Every event below it is there."""

    @property
    def short_name(self) -> str:
        return self.table.token_name.removeprefix("main.")


@dataclass(frozen=True)
class CutTail:
    """The rows of a tail with start <= _seq < end."""

    key: str
    """Names one stream of one table with one schema."""
    start: int
    end: int
    rows_from: Callable[[int], pa.Table]
    """The rows from a position on. To be called before anything is waited for: a commit may take them out later."""


@dataclass(frozen=True)
class HistoryOverlay:
    """The history of an entity above its base."""

    history: TableCut
    start: int
    """Every event below it is in the base."""
    base_columns: list[str]
    """The columns that the base has; the others are null in it."""
    has_committed: bool
    """Whether a snapshot of the history has events above the base."""
    base_alone: bool = False
    """Whether the base is read as it is, without any event above it."""


@dataclass(frozen=True)
class TableCut:
    """One state of one table."""

    table: LakeTable
    """The table of this name: a log, a history, a bulk table, or the base of an entity."""
    fed: LakeTable
    """The table that events go to: for an entity its history, else the same."""
    columns: pa.Schema
    snapshot_id: int | None
    committed_at: datetime | None
    watermark: int | None
    end: int | None
    """Every event below it is in the cut; None where a foreign snapshot says nothing of it."""
    pinned: bool = False
    """Whether the snapshot is named, and may be another than the current one."""
    tail: CutTail | None = None
    live_rows: int = 0
    """The rows that come from the tail."""
    overlay: HistoryOverlay | None = None

    @property
    def is_entity(self) -> bool:
        return self.overlay is not None

    @property
    def metadata(self) -> str | None:
        """The address of the file that describes the table; None where no snapshot is read."""
        return self.table.metadata_location if self.snapshot_id is not None else None

    @property
    def reach(self) -> Reach:
        assert self.end is not None, "only a snapshot of the past says nothing of its end"
        return Reach(self.fed, self.is_entity, self.end)

    @property
    def token(self) -> Token:
        return Token() if self.end is None else token_below(self.fed, self.end)

    def body(self, now: datetime, *, with_live_rows: bool = True) -> dict[str, Any]:
        """The cut as an answer names it. Who may not see all rows gets no number of those in the tail."""
        live = self.watermark is not None and self.end is not None and self.end > self.watermark
        age = 0.0 if live or self.committed_at is None else max(0.0, (now - self.committed_at).total_seconds())
        of_entity = {}
        if (overlay := self.overlay) is not None:
            of_entity = {"history_snapshot_id": None if overlay.base_alone else overlay.history.snapshot_id}
        return {
            "snapshot_id": self.snapshot_id,
            **of_entity,
            "committed_at": self.committed_at.isoformat() if self.committed_at else None,
            "watermark": str(token_below(self.fed, self.watermark)) if self.watermark is not None else None,
            "token": str(self.token) if self.end is not None else None,
            "age_seconds": round(age, 3),
            "live_rows": self.live_rows if with_live_rows or self.tail is None else None,
        }


def live_cut(table: LakeTable, tail: LiveTail) -> TableCut:
    """The current snapshot and the tail above it, now. Raises `CutMoved` if there is a hole between them."""
    start = table.watermark
    if tail.complete_from > start:
        raise CutMoved.of(table.spec.short_name)
    end = max(tail.ready_to, start)
    rows = partial(tail.rows, table.spec)
    found = rows(start, end)  # raises SchemaMoved, before a worker has got anything
    return TableCut(
        table,
        table,
        table.spec.row_schema(),
        table.snapshot_id,
        table.last_commit_at,
        watermark=start,
        end=end,
        tail=CutTail(
            key="/".join((*source_of(table), str(table.iceberg.metadata.current_schema_id))),
            start=start,
            end=end,
            rows_from=lambda position: rows(max(position, start), end),
        ),
        live_rows=found.num_rows,
    )


def committed_cut(table: LakeTable, pinned: SnapshotInfo | None = None) -> TableCut:
    """The current snapshot, or the one that is named."""
    if pinned is None:
        columns, watermark = table.spec.row_schema(), table.watermark
        return TableCut(table, table, columns, table.snapshot_id, table.last_commit_at, watermark, watermark)
    return TableCut(
        table,
        table,
        columns_at(table, pinned.snapshot_id),
        pinned.snapshot_id,
        pinned.committed_at,
        pinned.watermark,
        pinned.watermark,
        pinned=True,
    )


def token_below(fed: LakeTable, end: int) -> Token:
    """The token of an answer that has everything below this position."""
    return Token.of(fed.token_name, fed.stream_identity, end - 1)
