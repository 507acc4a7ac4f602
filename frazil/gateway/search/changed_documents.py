"""Changed documents: the events from a position on, the rows of loads, and what is no longer there."""

# ruff: noqa: S608 (names are quoted here, numbers are numbers)
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events import conform
from frazil.events.declaration import quote_name as quoted
from frazil.gateway.relations import relation_of
from frazil.lake.bulk import loads_since_snapshot
from frazil.serving.search import DocumentChange, FreshFull, Searchable, SearchState
from frazil.serving.sql import QueryPool, Relation, SqlQuery
from frazil.tables import TableCut

_OWNER = "search"
_TOUCHED = "_touched"
_MOST_BYTES = 256 << 20
_MOST_COMPARED = 2_000_000
_WRAP = 1 << 64


class TooManyChanges(FreshFull):
    """More changed than is kept in memory: it was not even read."""


MakeChanges = Callable[[], list[DocumentChange]]
"""Makes changes of rows: thousands of them are work for a thread, not for the loop."""


@dataclass(frozen=True)
class Changes:
    make: MakeChanges
    upto: int

    @property
    def is_nothing(self) -> bool:
        return self.make is _none


def _none() -> list[DocumentChange]:
    return []


class ChangedDocuments:
    """Read through the query workers, where the snapshot and the tail are one relation already."""

    def __init__(self, pool: QueryPool, searchable: Searchable, *, max_documents: int) -> None:
        self._pool = pool
        self._searchable = searchable
        self._most = max_documents

    def at_hand(self, cut: TableCut, start: int) -> Changes | None:
        """What is in the tail already; None if a worker has to be asked. Called in the moment of the cut."""
        end, tail = cut.reach.end, cut.tail
        if start >= end:
            return Changes(_none, end)
        if tail is None or start < tail.start or cut.is_entity:
            return None
        return Changes(partial(self._written, tail.rows_from(start)), end)

    async def events(self, cut: Callable[[], TableCut], start: int, *, seconds: float) -> Changes:
        """Everything from this position on, up to the end of the cut that is taken when a worker is there."""
        taken = cut()
        name = _quoted(_relation(taken))
        if taken.overlay is not None:
            sql = self._touched(name, _quoted(_relation(taken.overlay.history)), start)
        else:
            sql = f"SELECT * FROM {name} WHERE _seq >= {start}"
        read: list[TableCut] = []

        def relations() -> Sequence[Relation]:
            read[:] = [cut()]
            overlay = read[0].overlay
            return [_relation(read[0]), *([_relation(overlay.history)] if overlay is not None else [])]

        rows = await self._rows(sql, relations, taken, seconds)
        return Changes(partial(self._states if taken.is_entity else self._written, rows), read[0].reach.end)

    async def loaded(
        self, cut: TableCut, state: SearchState, seen: int | None, position: int, *, seconds: float
    ) -> MakeChanges | None:
        """What came to the log, or went, beside its events, since this snapshot, up to that of the cut.

        `position` is where these changes are put; the rows' own would be below that of every event.
        """
        if seen == cut.table.snapshot_id:
            return None
        arrived = loads_since_snapshot(cut.table, seen)
        if arrived.rewritten:
            if await self._adds_up(cut, state, seconds):
                return None
            return await self._compared(cut, state, position, seconds)
        return await self._of_loads(cut, arrived.loads, position, seconds) if arrived.loads else None

    async def _of_loads(self, cut: TableCut, loads: Iterable[int], position: int, seconds: float) -> MakeChanges:
        listed = ", ".join(str(load) for load in sorted(set(loads)))
        rows = await self._committed(cut, f"* FROM %s WHERE _seq IN ({listed})", seconds)
        return partial(self._put, rows, position)

    async def _adds_up(self, cut: TableCut, state: SearchState, seconds: float) -> bool:
        """Whether the generation has the very loads that the table has, and as many of its events: by their sums.

        Snapshots expire by the hundred between two builds, and looking at every id would take long.
        """
        generation = state.generation
        if generation is None:
            return False
        watermark = generation.watermark
        select = (
            "count(*) FILTER (_seq < 0), CAST(sum(_seq) FILTER (_seq < 0) AS VARCHAR), "
            f"count(*) FILTER (_seq >= 0 AND _seq < {watermark}) FROM %s"
        )
        there = [column[0].as_py() for column in (await self._committed(cut, select, seconds)).columns]
        here = await asyncio.to_thread(_sums, state)
        return (there[0], int(there[1] or 0) % _WRAP, there[2]) == here

    async def _compared(self, cut: TableCut, state: SearchState, position: int, seconds: float) -> MakeChanges:
        """The difference between what is searched and the snapshot, found by looking at all ids of both."""
        short, watermark = cut.table.spec.short_name, cut.table.watermark
        if cut.table.rows > _MOST_COMPARED:
            raise TooManyChanges(
                f"rows of {short!r} were replaced or removed since its artifact was built",
                hint=f"build a new one: frazil build {short}",
                retry_after_seconds=10.0,
            )
        rows = await self._committed(cut, "_id, _seq FROM %s", seconds, most=_MOST_COMPARED)
        gone, loads = await asyncio.to_thread(_difference, rows, state, watermark)
        came = await self._of_loads(cut, loads, position, seconds) if loads else _none
        return lambda: [*(DocumentChange(position, (id_,), None) for id_ in gone), *came()]

    async def _committed(self, cut: TableCut, select: str, seconds: float, *, most: int | None = None) -> pa.Table:
        """Of the snapshot alone, which stays what it is while a worker is waited for."""
        snapshot = _relation(replace(cut, tail=None))
        return await self._rows(f"SELECT {select % _quoted(snapshot)}", lambda: [snapshot], cut, seconds, most=most)

    async def _rows(
        self,
        sql: str,
        relations: Callable[[], Sequence[Relation]],
        cut: TableCut,
        seconds: float,
        *,
        most: int | None = None,
    ) -> pa.Table:
        limit = self._most if most is None else most
        query = SqlQuery(
            sql, owner=_OWNER, format="arrow", max_rows=limit, max_bytes=_MOST_BYTES, timeout_seconds=seconds
        )
        result = await self._pool.run(query, relations)
        if result.truncated:
            raise TooManyChanges(
                f"more than {limit:,} documents of {cut.reach.short_name!r} are newer than its artifact",
                hint=f"build one: frazil build {cut.reach.short_name}",
                retry_after_seconds=10.0,
            )
        return pa.ipc.open_stream(result.body).read_all()

    def _touched(self, entity: str, history: str, start: int) -> str:
        """The keys that events touched from this position on, each with what the entity has of it now."""
        keys = ", ".join(quoted(name) for name in self._searchable.key)
        joined = " AND ".join(f"c.{quoted(name)} = e.{quoted(name)}" for name in self._searchable.key)
        named = ", ".join(f"c.{quoted(name)} AS {quoted(_touched_key(name))}" for name in self._searchable.key)
        return (
            f"SELECT c.{_TOUCHED}, {named}, e.* FROM "
            f"(SELECT {keys}, max(_seq) AS {_TOUCHED} FROM {history} WHERE _seq >= {start} GROUP BY {keys}) c "
            f"LEFT JOIN {entity} e ON {joined}"
        )

    def _states(self, rows: pa.Table) -> list[DocumentChange]:
        touched = rows.column(_TOUCHED).to_pylist()
        schema = self._searchable.schema
        touched_keys = pa.table(
            [pc.cast(rows.column(_touched_key(name)), schema.field(name).type) for name in self._searchable.key],
            names=list(self._searchable.key),
        ).to_pylist()
        keys = [self._searchable.key_of(key) for key in touched_keys]
        there = rows.column("_op").is_valid().to_pylist()
        states = self._pylist(rows)
        return [
            DocumentChange(at, key, row if is_there else None)
            for at, key, row, is_there in zip(touched, keys, states, there, strict=True)
        ]

    def _written(self, rows: pa.Table) -> list[DocumentChange]:
        """Rows of a log, each a document of its own."""
        if not rows.num_rows:
            return []
        positions = rows.column("_seq").to_pylist()
        key_of = self._searchable.key_of
        return [DocumentChange(at, key_of(row), row) for at, row in zip(positions, self._pylist(rows), strict=True)]

    def _put(self, rows: pa.Table, position: int) -> list[DocumentChange]:
        key_of = self._searchable.key_of
        return [DocumentChange(position, key_of(row), row) for row in self._pylist(rows)]

    def _pylist(self, rows: pa.Table) -> list[dict[str, Any]]:
        schema = self._searchable.schema
        known = rows.select([name for name in schema.names if name in rows.schema.names])
        found: list[dict[str, Any]] = conform(known, schema).to_pylist()
        return found


def _touched_key(name: str) -> str:
    """No column has a space in its name."""
    return f"{name} touched"


def _relation(cut: TableCut) -> Relation:
    """Every row as it is: what a caller may see is decided when the documents are searched, not when they are fed."""
    schema, _, name = cut.table.name.partition(".")
    return relation_of(cut, (schema, name))


def _quoted(relation: Relation) -> str:
    return f"{quoted(relation.schema)}.{quoted(relation.name)}"


def _sums(state: SearchState) -> tuple[int, int, int]:
    """How many rows of loads are searched, the sum of their positions, and how many events."""
    assert state.generation is not None
    positions = state.generation.contents.rows.column("_seq").to_numpy()
    if (hidden := state.view.hidden) is not None:
        positions = positions[~hidden]
    fresh = [state.view.slots.documents[slot].row["_seq"] for slot in state.view.live_slots]
    loaded = positions[positions < 0]
    put = [at for at in fresh if at < 0]
    total = (int(np.add.reduce(loaded, dtype=np.int64)) + sum(put)) % _WRAP
    return len(loaded) + len(put), total, len(positions) - len(loaded)


def _difference(there_now: pa.Table, state: SearchState, watermark: int) -> tuple[list[str], set[int]]:
    """The ids that are searched and not in the table, and the loads of which the table has rows that are not."""
    there = set(_pairs(there_now))
    known: set[tuple[str, int]] = set()
    if state.generation is not None:
        rows, hidden = state.generation.contents.rows.select(["_id", "_seq"]), state.view.hidden
        known = set(_pairs(rows if hidden is None else rows.filter(pa.array(~hidden))))
    fresh = [state.view.slots.documents[slot].row for slot in state.view.live_slots]
    known |= {(row["_id"], row["_seq"]) for row in fresh if row["_seq"] < watermark}
    left = {id_ for id_, _ in there}
    return [id_ for id_, _ in known - there if id_ not in left], {seq for _, seq in there - known if seq < 0}


def _pairs(rows: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(rows.column("_id").to_pylist(), rows.column("_seq").to_pylist(), strict=True)
