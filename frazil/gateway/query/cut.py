"""The cut: of each table that a statement names, the one state that the answer is read from.

A live cut is a snapshot and the tail above its watermark. Both are taken at one moment on the event loop, from a tail
that has no hole between the two: a commit that moves rows from one to the other in between changes neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from frazil.access import ReadGrant
from frazil.errors import Unavailable
from frazil.events import Token
from frazil.gateway.query.entities import EntitySnapshot, overlay_on_base
from frazil.lake.catalog import LakeTable, SnapshotInfo, columns_at
from frazil.serving.sql import Relation, TableRef, TailRows
from frazil.tables import LiveTail, source_of


@dataclass(frozen=True)
class TableSource:
    """One table reference of a statement, found and allowed, before the moment of the cut."""

    ref: TableRef
    table: LakeTable
    """The table that events go to: for an entity, its history."""
    grant: ReadGrant
    pinned: SnapshotInfo | None = None
    entity: EntitySnapshot | None = None
    tail: LiveTail | None = None
    head: asyncio.Task[int] | None = None
    """Being asked for, if the tail is a guess: it holds every receipt only if it reaches this far."""


@dataclass(frozen=True)
class CutTable:
    """What was read of one table."""

    name: str
    snapshot_id: int | None
    committed_at: datetime | None
    token_name: str
    stream: str
    watermark: int | None
    end: int | None
    """Every event below it is in the answer; None where a foreign snapshot says nothing of it."""
    live_rows: int | None
    """How many come from the tail; None for a caller who may not see all of them."""
    history_snapshot_id: int | None = None
    """Of an entity: the snapshot of its history that was read above its base."""
    is_entity: bool = False

    @property
    def token(self) -> Token:
        return Token.of(self.token_name, self.stream, self.end - 1) if self.end is not None else Token()

    def body(self, now: datetime) -> dict[str, Any]:
        live = self.watermark is not None and self.end is not None and self.end > self.watermark
        age = 0.0 if live or self.committed_at is None else max(0.0, (now - self.committed_at).total_seconds())
        watermark = Token.of(self.token_name, self.stream, self.watermark - 1) if self.watermark is not None else None
        of_entity = {"history_snapshot_id": self.history_snapshot_id} if self.is_entity else {}
        return {
            "snapshot_id": self.snapshot_id,
            **of_entity,
            "committed_at": self.committed_at.isoformat() if self.committed_at else None,
            "watermark": str(watermark) if watermark else None,
            "token": str(self.token) if self.end is not None else None,
            "age_seconds": round(age, 3),
            "live_rows": self.live_rows,
        }


class CutMoved(Unavailable):
    """The table changed between finding it and the cut: find it again."""

    code = "cut_moved"


def take_cut(
    sources: Sequence[TableSource], newest: Callable[[LakeTable], LakeTable]
) -> tuple[list[Relation], list[CutTable]]:
    """Take the cut, now; `newest` gives a table as it was last seen. One named twice is read from the same state."""
    relations: dict[tuple[str, str], Relation] = {}
    tables: list[CutTable] = []
    for source in sources:
        if source.ref.reads in relations:
            continue
        table = source.table if source.pinned else newest(source.table)
        relation, told = _live_cut(source, table) if source.tail else _committed_cut(source, table)
        if source.entity is not None:
            relation, told = overlay_on_base(relation, told, source.entity, table, newest)
        relations[source.ref.reads] = relation
        tables.append(told)
    return list(relations.values()), tables


def _live_cut(source: TableSource, table: LakeTable) -> tuple[Relation, CutTable]:
    tail = source.tail
    assert tail is not None
    start = table.watermark
    if tail.complete_from > start:
        raise CutMoved(f"{table.spec.short_name!r} is changing", hint="try again")
    end = max(tail.ready_to, start)
    rows = partial(tail.rows, table.spec)
    # What SchemaMoved would say must be known before the worker is told anything.
    found = rows(start, end)
    relation = Relation(
        schema=source.ref.reads[0],
        name=source.ref.reads[1],
        columns=table.spec.row_schema(),
        metadata=table.metadata_location if table.snapshot_id is not None else None,
        snapshot_id=None,
        tail=TailRows(
            key="/".join((*source_of(table), str(table.iceberg.metadata.current_schema_id))),
            start=start,
            end=end,
            rows_from=lambda position: rows(max(position, start), end),
        ),
        where=source.grant.where,
        masks=source.grant.masks,
        hash_domains=source.grant.hash_domains,
    )
    live_rows = None if source.grant.filters else found.num_rows
    told = CutTable(
        table.name,
        table.snapshot_id,
        table.last_commit_at,
        table.token_name,
        table.stream_identity,
        start,
        end,
        live_rows=live_rows,
    )
    return relation, told


def _committed_cut(source: TableSource, table: LakeTable) -> tuple[Relation, CutTable]:
    pinned = source.pinned
    snapshot_id = pinned.snapshot_id if pinned else table.snapshot_id
    watermark = pinned.watermark if pinned else table.watermark
    columns: pa.Schema = columns_at(table, pinned.snapshot_id) if pinned else table.spec.row_schema()
    relation = Relation(
        schema=source.ref.reads[0],
        name=source.ref.reads[1],
        columns=columns,
        metadata=table.metadata_location if snapshot_id is not None else None,
        snapshot_id=pinned.snapshot_id if pinned else None,
        where=source.grant.where,
        masks=source.grant.masks,
        hash_domains=source.grant.hash_domains,
    )
    committed_at = pinned.committed_at if pinned else table.last_commit_at
    told = CutTable(
        table.name,
        snapshot_id,
        committed_at,
        table.token_name,
        table.stream_identity,
        watermark,
        watermark,
        live_rows=0,
    )
    return relation, told
