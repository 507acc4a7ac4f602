"""Table resolver: tables found at a stated freshness, each ready for its cut."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from frazil.errors import BusGap, FrazilError, InvalidInput, NotFound, Unavailable, VisibilityTimeout
from frazil.events import Mark, Token, first_position, sequence_of
from frazil.lake.catalog import LakeTable, SnapshotExpired, SnapshotInfo, snapshot_as_of, snapshot_by_id, watermark_at
from frazil.requests import FreshnessSpec
from frazil.storage import Journal
from frazil.tables.cut import CutMoved, Reach, TableCut, committed_cut, live_cut, token_below
from frazil.tables.directory import TableDirectory, source_of
from frazil.tables.entity_cut import EntitySnapshot, base_as_of, overlay_on_base
from frazil.tables.errors import SchemaMoved
from frazil.tables.live_tail import LiveTail
from frazil.tables.stream import TableStream
from frazil.tables.visibility import check_mark, check_reached, until_committed

_MOMENT_SECONDS = 0.02


@dataclass(frozen=True)
class TableRead:
    """A table to read; with a snapshot or a time of its own, that one counts and not the freshness of the request."""

    name: str
    snapshot_id: int | None = None
    as_of: datetime | None = None


@dataclass(frozen=True)
class ResolvedTable:
    """A table at the requested freshness. `cut` and `reach` are of the moment in which they are called."""

    table: LakeTable
    """The table that events go to: for an entity, its history."""
    directory: TableDirectory
    pinned: SnapshotInfo | None = None
    entity: EntitySnapshot | None = None
    tail: LiveTail | None = None
    head: asyncio.Task[int] | None = None
    """Of a tail that was taken as it was known: it has every receipt only if it reaches this far."""

    def cut(self) -> TableCut:
        """The state to read, from the table as it was last seen. Its tail must be read before anything is awaited."""
        table = self.table if self.pinned else self._newest(self.table)
        cut = live_cut(table, self.tail) if self.tail is not None else committed_cut(table, self.pinned)
        if self.entity is None:
            return cut
        return overlay_on_base(cut, self.entity, self._newest(self.entity.base))

    def reach(self) -> Reach:
        """How far the newest state has come. A cut takes a hundred times as long."""
        fed = self._newest(self.table)
        if self.tail is not None and self.tail.complete_from > fed.watermark:
            raise CutMoved.of(fed.spec.short_name)
        folded = 0 if self.entity is None else self._newest(self.entity.base).watermark
        end = max(fed.watermark, folded, self.tail.ready_to if self.tail is not None else 0)
        return Reach(fed, self.entity is not None, end)

    async def confirm(self, end: int | None) -> None:
        """Raise `CutMoved` unless what was read has every event that had its receipt when the table was resolved.

        `end` is where it ends.
        """
        if self.head is not None and (end or 0) < first_position(await self.head + 1):
            raise CutMoved.of(self.table.spec.short_name)

    def token(self, end: int) -> Token:
        """The token of an answer that has everything below this position."""
        return token_below(self.table, end)

    def _newest(self, table: LakeTable) -> LakeTable:
        return self.directory.known(table.name, source_of(table)) or table


class TableResolver:
    """Finds tables at a stated freshness. `stream_of` gives the stream that feeds a table."""

    def __init__(
        self,
        directory: TableDirectory,
        stream_of: Callable[[LakeTable], TableStream],
        journal: Journal,
        *,
        max_tail_bytes: int,
    ) -> None:
        self._directory = directory
        self._stream_of = stream_of
        self._journal = journal
        self._max_tail_bytes = max_tail_bytes

    async def exists(self, name: str) -> bool:
        try:
            await self._directory.table(name)
        except NotFound:
            return False
        return True

    async def refresh(self) -> None:
        """See what the catalog has now, after something has moved."""
        await self._directory.refresh()

    async def resolve(
        self, reads: Sequence[TableRead], wanted: FreshnessSpec, *, deadline: float, guess: bool
    ) -> list[ResolvedTable]:
        """Every table, once all are as fresh as requested; raises when `deadline` passes before.

        With `guess`, a live tail is taken as it is known here while the head is still being requested from the bus:
        `confirm` what was read.
        """
        if wanted.freshness == "committed":
            await self._directory.refresh()
        finding = [self._resolved(read, wanted, deadline, guess) for read in reads]
        return [await finding[0]] if len(finding) == 1 else await _all_or_none(finding)

    async def _resolved(self, read: TableRead, wanted: FreshnessSpec, deadline: float, guess: bool) -> ResolvedTable:
        table = await self._directory.table(read.name)
        if table.spec.kind == "entity":
            return await self._entity(read, table, wanted, deadline, guess)
        mark = wanted.min_token.marks.get(table.token_name)
        if mark is not None:
            check_mark(table, mark)
        pinned = await self._pinned(read, table, wanted)
        if pinned is not None:
            table = await self._directory.table(read.name)  # the one that has the snapshot, if it was just found
            _not_before(table, pinned, pinned.watermark, mark)
            return self._found(table, pinned=pinned)
        return await self.newest(read.name, wanted, deadline=deadline, guess=guess)

    def _found(
        self,
        table: LakeTable,
        *,
        pinned: SnapshotInfo | None = None,
        entity: EntitySnapshot | None = None,
        tail: LiveTail | None = None,
        head: asyncio.Task[int] | None = None,
    ) -> ResolvedTable:
        return ResolvedTable(table, self._directory, pinned, entity, tail, head)

    async def newest(self, name: str, wanted: FreshnessSpec, *, deadline: float, guess: bool) -> ResolvedTable:
        """The table as it was last seen, with its tail if the answer is to be live: `resolve` without time travel."""
        table = await self._directory.table(name)
        if table.spec.kind == "entity":
            entity = await self._directory.entity(table)
            found = await self.newest(entity.history.name, wanted, deadline=deadline, guess=guess)
            return replace(found, entity=EntitySnapshot(entity.base))
        mark = wanted.min_token.marks.get(table.token_name)
        if mark is not None:
            check_mark(table, mark)
        if not table.spec.is_streamed:
            await self._directory.refresh()  # a load that is done must be seen, and it is in no tail
            return self._found(await self._directory.table(table.name))
        if mark is not None:
            await check_reached(self._stream_of(table), table, mark)
        if wanted.freshness == "committed":
            if mark is not None:
                table = await self._committed(table, mark, wanted, deadline)
            return self._found(table)
        if guess and mark is None and (guessed := self._stream_of(table).tail_and_head()) is not None:
            tail, head = guessed
            if tail.extent(table.watermark).size <= self._max_tail_bytes:
                with contextlib.suppress(SchemaMoved, BusGap):
                    await tail.ready(table.spec, table.watermark)
                    return self._found(table, tail=tail, head=head)
            head.cancel()
        return self._found(table, tail=await self._live(table, mark, wanted, deadline))

    async def _entity(
        self, read: TableRead, base: LakeTable, wanted: FreshnessSpec, deadline: float, guess: bool
    ) -> ResolvedTable:
        """An entity is found by its history, and read on top of its base."""
        entity = await self._directory.entity(base)
        mark = wanted.min_token.marks.get(base.name)
        if mark is not None:
            check_mark(entity.history, mark)
        snapshot_id = read.snapshot_id
        if snapshot_id is None and read.as_of is None:
            snapshot_id = wanted.snapshot.get(base.name)
        if snapshot_id is not None:
            snapshot = await self._by_id(base, snapshot_id)
            base = await self._directory.table(base.name)
            history = (await self._directory.entity(base)).history
            _not_before(base, snapshot, watermark_at(base, snapshot.snapshot_id), mark)
            return self._found(history, entity=EntitySnapshot(base, snapshot, pinned=True, alone=True))
        moment = read.as_of or wanted.as_of_table.get(base.name, wanted.as_of)
        if moment is not None:
            await self._directory.refresh()
            entity = await self._directory.entity(await self._directory.table(base.name))
            pinned = snapshot_as_of(entity.history, moment)
            _not_before(base, pinned, watermark_at(entity.history, pinned.snapshot_id), mark)
            at = base_as_of(entity.base, entity.history, pinned, moment)
            return self._found(entity.history, pinned=pinned, entity=at)
        return await self.newest(base.name, wanted, deadline=deadline, guess=guess)

    async def _pinned(self, read: TableRead, table: LakeTable, wanted: FreshnessSpec) -> SnapshotInfo | None:
        """The snapshot that this read names, or else the request."""
        if read.snapshot_id is not None:
            return await self._by_id(table, read.snapshot_id)
        if read.as_of is None and table.name in wanted.snapshot:
            return await self._by_id(table, wanted.snapshot[table.name])
        moment = read.as_of or wanted.as_of_table.get(table.name, wanted.as_of)
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

    async def _committed(self, table: LakeTable, mark: Mark, wanted: FreshnessSpec, deadline: float) -> LakeTable:
        if table.watermark > mark.position:
            return table
        left = max(0.0, deadline - time.monotonic())
        with wanted.waiting():
            table, done = await until_committed(self._directory, table.name, mark, timeout_seconds=left)
        if not done:
            raise _not_reached(table, mark, table.watermark)
        return table

    async def _live(self, table: LakeTable, mark: Mark | None, wanted: FreshnessSpec, deadline: float) -> LiveTail:
        """The tail, holding every event that had its receipt when this was called, and the one of the mark."""
        if self._stream_of(table).is_warm:
            return await self._live_tail(table, mark, wanted, deadline)
        with wanted.waiting():
            return await self._live_tail(table, mark, wanted, deadline)

    async def _live_tail(self, table: LakeTable, mark: Mark | None, wanted: FreshnessSpec, deadline: float) -> LiveTail:
        reached: int | None = None
        while True:
            patience = deadline - time.monotonic()
            tail = await self._stream_of(table).tail_up_to_head(patience_seconds=patience) if patience > 0 else None
            if tail is None:
                if mark is not None and reached is not None:
                    raise _not_reached(table, mark, reached)
                raise _too_slow(table)
            if mark is not None and tail.end <= mark.position and table.watermark <= mark.position:
                reached = tail.end
                with wanted.waiting():
                    await asyncio.sleep(_MOMENT_SECONDS)
                table = await self._directory.table(table.name)
                continue
            await self._within_bounds(table, tail, wanted, deadline)
            table = await self._directory.table(table.name)
            try:
                await tail.ready(table.spec, table.watermark)
                return tail
            except SchemaMoved:
                await self._directory.refresh()
            except BusGap:
                # Trimmed means committed: then the table has the events. If it has not, the gap is real.
                await self._directory.refresh()
                newer = await self._directory.table(table.name)
                if newer.watermark <= table.watermark:
                    raise

    async def _within_bounds(self, table: LakeTable, tail: LiveTail, wanted: FreshnessSpec, deadline: float) -> None:
        def fits(now: LakeTable) -> bool:
            return tail.extent(now.watermark).size <= self._max_tail_bytes

        table = await self._directory.table(table.name)
        if fits(table):
            return
        done = False
        if wanted.wait_when_behind:
            left = max(0.0, deadline - time.monotonic())
            with wanted.waiting():
                table, done = await self._directory.until(table.name, fits, timeout_seconds=left)
        if not done:
            extent = tail.extent(table.watermark)
            raise Unavailable(
                f"{extent.rows:,} events of {table.spec.short_name!r} are not committed yet, "
                "more than a live answer may hold",
                code="tail_too_long",
                hint='use "freshness": "committed", or "when_behind": "wait" and more time; '
                "GET /v1/status has the state of the pipeline",
                details={
                    "table": table.spec.short_name,
                    "events": extent.rows,
                    "bytes": extent.size,
                    "most_bytes": self._max_tail_bytes,
                },
                retry_after_seconds=2.0,
            )


async def _all_or_none(finding: Sequence[Coroutine[Any, Any, ResolvedTable]]) -> list[ResolvedTable]:
    """All of them; where one fails, none of the others goes on waiting for what nobody is going to read."""
    tasks = [asyncio.create_task(one, name="find a table") for one in finding]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


def _not_before(table: LakeTable, pinned: SnapshotInfo, watermark: int | None, mark: Mark | None) -> None:
    if mark is not None and (watermark is None or watermark <= mark.position):
        raise InvalidInput(
            f"snapshot {pinned.snapshot_id} of {table.spec.short_name!r} is older than the token",
            code="snapshot_before_token",
            hint="leave out min_token, or the snapshot",
        )


def _not_reached(table: LakeTable, mark: Mark, end: int) -> VisibilityTimeout:
    short = table.spec.short_name
    return VisibilityTimeout(
        f"{short!r} has not reached the token within the time given",
        hint="try again with more time, or without min_token; GET /v1/status has the state of the pipeline",
        details={
            "table": short,
            "wanted": str(Token.of(table.token_name, mark.stream, mark.position)),
            "reached": str(Token.of(table.token_name, table.stream_identity, end - 1)),
            "snapshot_id": table.snapshot_id,
            "messages_behind": max(0, sequence_of(mark.position) + 1 - sequence_of(end)),
        },
        retry_after_seconds=1.0,
    )


def _too_slow(table: LakeTable) -> Unavailable:
    return Unavailable(
        f"the newest events of {table.spec.short_name!r} could not be read within the time given",
        code="warming",
        hint='try again in a moment, or use "freshness": "committed"',
        retry_after_seconds=2.0,
    )
