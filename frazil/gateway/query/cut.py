"""The cut: of each table that a statement names, the one state that the answer is read from.

A live cut is a snapshot and the tail above its watermark. Both are taken at one moment on the event loop, from a tail
that has no hole between the two: a commit that moves rows from one to the other in between changes neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from frazil.access import ReadGrant
from frazil.errors import FrazilError, InvalidInput, NotFound, Unavailable, VisibilityTimeout
from frazil.events import Mark, Token, sequence_of, start_of
from frazil.gateway.ingest import (
    SchemaMoved,
    TableDirectory,
    TableWriters,
    Tail,
    check_mark,
    source_of,
    until_committed,
)
from frazil.gateway.query.ask import Ask
from frazil.lake import LakeTable, SnapshotExpired, SnapshotInfo, columns_at, snapshot_as_of, snapshot_by_id
from frazil.serving import Relation, TableRef
from frazil.serving import Tail as TailOfRelation
from frazil.storage import Journal

_MOMENT_SECONDS = 0.02


@dataclass(frozen=True)
class Source:
    """One table reference of a statement, found and allowed, before the moment of the cut."""

    ref: TableRef
    table: LakeTable
    grant: ReadGrant
    pinned: SnapshotInfo | None = None
    tail: Tail | None = None
    head: asyncio.Task[int] | None = None
    """Being asked for, if the tail is a guess: it holds every receipt only if it reaches this far."""


@dataclass(frozen=True)
class CutTable:
    """What was read of one table."""

    name: str
    snapshot_id: int | None
    committed_at: datetime | None
    stream: str
    watermark: int | None
    end: int | None
    """Every event below it is in the answer; None where a foreign snapshot says nothing of it."""
    live_rows: int | None
    """How many come from the tail; None for a caller who may not see all of them."""

    @property
    def token(self) -> Token:
        return Token.of(self.name, self.stream, self.end - 1) if self.end is not None else Token()

    def body(self, now: datetime) -> dict[str, Any]:
        live = self.watermark is not None and self.end is not None and self.end > self.watermark
        age = 0.0 if live or self.committed_at is None else max(0.0, (now - self.committed_at).total_seconds())
        watermark = Token.of(self.name, self.stream, self.watermark - 1) if self.watermark is not None else None
        return {
            "snapshot_id": self.snapshot_id,
            "committed_at": self.committed_at.isoformat() if self.committed_at else None,
            "watermark": str(watermark) if watermark else None,
            "token": str(self.token) if self.end is not None else None,
            "age_seconds": round(age, 3),
            "live_rows": self.live_rows,
        }


class CutMoved(Unavailable):
    """The table changed between finding it and the cut: find it again."""

    code = "cut_moved"


class Resolver:
    """Finds the tables of a statement at the freshness that was asked for."""

    def __init__(
        self,
        directory: TableDirectory,
        writers: TableWriters,
        journal: Journal,
        *,
        max_tail_bytes: int,
    ) -> None:
        self._directory = directory
        self._writers = writers
        self._journal = journal
        self._max_tail_bytes = max_tail_bytes

    async def exists(self, name: str) -> bool:
        try:
            await self._directory.table(name)
        except NotFound:
            return False
        return True

    async def look_again(self) -> None:
        await self._directory.refresh()

    async def resolve(
        self, allowed: Sequence[tuple[TableRef, ReadGrant]], ask: Ask, *, deadline: float, guess: bool
    ) -> list[Source]:
        """Every reference with its table, once all are as fresh as asked; raises when `deadline` passes before.

        With `guess`, a live tail is taken as it is known here while the bus is still being asked: `confirm` the cut.
        """
        if ask.freshness == "committed":
            await self._directory.refresh()
        finding = [self._source(ref, grant, ask, deadline, guess) for ref, grant in allowed]
        return [await finding[0]] if len(finding) == 1 else list(await asyncio.gather(*finding))

    async def _source(self, ref: TableRef, grant: ReadGrant, ask: Ask, deadline: float, guess: bool) -> Source:
        name = f"{ref.schema}.{ref.name}"
        table = await self._directory.table(name)
        mark = ask.min_token.marks.get(name)
        if mark is not None:
            check_mark(table, mark)
        pinned = await self._pinned(ref, table, ask)
        if pinned is not None:
            table = await self._directory.table(name)  # the one that has the snapshot, if it was just found
            if mark is not None and (pinned.watermark is None or pinned.watermark <= mark.position):
                raise InvalidInput(
                    f"snapshot {pinned.snapshot_id} of {table.spec.short_name!r} is older than the token",
                    code="snapshot_before_token",
                    hint="leave out min_token, or the snapshot",
                )
            return Source(ref, table, grant, pinned=pinned)
        if ask.freshness == "committed":
            if mark is not None:
                table = await self._committed(table, mark, deadline)
            return Source(ref, table, grant)
        if guess and mark is None and (guessed := self._writers.of(table).guess()) is not None:
            tail, head = guessed
            if tail.extent(table.watermark).size <= self._max_tail_bytes:
                with contextlib.suppress(SchemaMoved):
                    await tail.ready(table.spec)
                    return Source(ref, table, grant, tail=tail, head=head)
            head.cancel()
        return Source(ref, table, grant, tail=await self._live(table, mark, ask, deadline))

    async def _pinned(self, ref: TableRef, table: LakeTable, ask: Ask) -> SnapshotInfo | None:
        """The snapshot that the statement names, or else the request."""
        if ref.version is not None:
            return await self._by_id(table, ref.version)
        if ref.as_of is None and table.name in ask.snapshot:
            return await self._by_id(table, ask.snapshot[table.name])
        moment = ref.as_of or ask.as_of_table.get(table.name, ask.as_of)
        if moment is None:
            return None
        # What was current then must not depend on when this gateway last looked.
        await self._directory.refresh()
        return snapshot_as_of(await self._directory.table(table.name), moment)

    async def _by_id(self, table: LakeTable, snapshot_id: int) -> SnapshotInfo:
        if not table.has_snapshot(snapshot_id):
            await self._directory.refresh()  # it may be of this very moment
            table = await self._directory.table(table.name)
        try:
            return snapshot_by_id(table, snapshot_id)
        except FrazilError as error:
            find = partial(self._journal.read, limit=1, table=table.name, snapshot=str(snapshot_id))
            if await asyncio.to_thread(find):
                raise SnapshotExpired(
                    f"snapshot {snapshot_id} of {table.spec.short_name!r} is expired", hint=error.hint
                ) from error
            raise

    async def _committed(self, table: LakeTable, mark: Mark, deadline: float) -> LakeTable:
        left = max(0.0, deadline - time.monotonic())
        table, done = await until_committed(self._directory, table.name, mark, timeout_seconds=left)
        if not done:
            raise _not_reached(table, mark, table.watermark)
        return table

    async def _live(self, table: LakeTable, mark: Mark | None, ask: Ask, deadline: float) -> Tail:
        """The tail, holding every event that had its receipt when this was called, and the one of the mark."""
        while True:
            patience = deadline - time.monotonic()
            tail = await self._writers.of(table).live(patience_seconds=patience) if patience > 0 else None
            if tail is None:
                raise _too_slow(table)
            if mark is not None and tail.end <= mark.position and table.watermark <= mark.position:
                if deadline - time.monotonic() <= _MOMENT_SECONDS:
                    raise _not_reached(table, mark, tail.end)
                await asyncio.sleep(_MOMENT_SECONDS)
                table = await self._directory.table(table.name)
                continue
            await self._within_bounds(table, tail, ask, deadline)
            try:
                table = await self._directory.table(table.name)
                await tail.ready(table.spec)
                return tail
            except SchemaMoved:
                await self._directory.refresh()

    async def _within_bounds(self, table: LakeTable, tail: Tail, ask: Ask, deadline: float) -> None:
        def fits(now: LakeTable) -> bool:
            return tail.extent(now.watermark).size <= self._max_tail_bytes

        table = await self._directory.table(table.name)
        if fits(table):
            return
        left = deadline - time.monotonic() if ask.wait_when_behind else 0.0
        table, done = await self._directory.until(table.name, fits, timeout_seconds=max(0.0, left))
        if not done:
            extent = tail.extent(table.watermark)
            raise Unavailable(
                f"{extent.rows:,} events of {table.spec.short_name!r} are not committed yet, "
                "more than a live answer may hold",
                code="tail_too_long",
                hint='ask with "freshness": "committed", or "when_behind": "wait" and more time; '
                "GET /v1/status tells what the pipeline does",
                details={
                    "table": table.spec.short_name,
                    "events": extent.rows,
                    "bytes": extent.size,
                    "most_bytes": self._max_tail_bytes,
                },
                retry_after_seconds=2.0,
            )

    async def confirm(self, sources: Sequence[Source], cut: Sequence[CutTable]) -> None:
        """Raise `CutMoved` if a guessed tail lacks something that was on the bus when the query began."""
        for source in sources:
            if source.head is not None:
                # A snapshot of the past, if the statement names one of the same table too, ends before the tail does.
                end = max(table.end or 0 for table in cut if table.name == source.table.name)
                if end < start_of(await source.head + 1):
                    raise CutMoved(f"{source.table.spec.short_name!r} is changing", hint="try again")

    def cut(self, sources: Sequence[Source]) -> tuple[list[Relation], list[CutTable]]:
        """Take the cut, now. The same table named twice is read from the same state."""
        relations: dict[tuple[str, str], Relation] = {}
        tables: list[CutTable] = []
        for source in sources:
            if source.ref.reads in relations:
                continue
            table = source.table
            if source.pinned is None:
                table = self._directory.known(table.name, source_of(table)) or table
            relation, told = _live_cut(source, table) if source.tail else _committed_cut(source, table)
            relations[source.ref.reads] = relation
            tables.append(told)
        return list(relations.values()), tables


def _live_cut(source: Source, table: LakeTable) -> tuple[Relation, CutTable]:
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
        tail=TailOfRelation(
            key="/".join((*source_of(table), str(table.iceberg.metadata.current_schema_id))),
            start=start,
            end=end,
            rows_from=lambda position: rows(max(position, start), end),
        ),
        where=source.grant.where,
        masks=source.grant.masks,
    )
    live_rows = None if source.grant.filters else found.num_rows
    told = CutTable(
        table.name, table.snapshot_id, table.last_commit_at, table.stream_identity, start, end, live_rows=live_rows
    )
    return relation, told


def _committed_cut(source: Source, table: LakeTable) -> tuple[Relation, CutTable]:
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
    )
    committed_at = pinned.committed_at if pinned else table.last_commit_at
    told = CutTable(table.name, snapshot_id, committed_at, table.stream_identity, watermark, watermark, live_rows=0)
    return relation, told


def _not_reached(table: LakeTable, mark: Mark, end: int) -> VisibilityTimeout:
    short = table.spec.short_name
    return VisibilityTimeout(
        f"{short!r} has not reached the token within the time given",
        hint="ask again with more time, or without min_token; GET /v1/status tells what the pipeline does",
        details={
            "table": short,
            "wanted": str(Token.of(table.name, mark.stream, mark.position)),
            "reached": str(Token.of(table.name, table.stream_identity, end - 1)),
            "snapshot_id": table.snapshot_id,
            "messages_behind": max(0, sequence_of(mark.position) + 1 - sequence_of(end)),
        },
        retry_after_seconds=1.0,
    )


def _too_slow(table: LakeTable) -> Unavailable:
    return Unavailable(
        f"the newest events of {table.spec.short_name!r} could not be read within the time given",
        code="warming",
        hint='try again in a moment, or ask with "freshness": "committed"',
        retry_after_seconds=2.0,
    )
