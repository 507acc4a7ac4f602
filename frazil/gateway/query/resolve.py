"""Finding the tables of a statement at the freshness that was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from frazil.access import ReadGrant
from frazil.errors import BusGap, FrazilError, InvalidInput, NotFound, Unavailable, VisibilityTimeout
from frazil.events import Mark, Token, first_position, sequence_of
from frazil.gateway.query.cut import CutMoved, CutTable, TableSource, take_cut
from frazil.gateway.query.entities import EntitySnapshot, base_as_of
from frazil.lake.catalog import LakeTable, SnapshotExpired, SnapshotInfo, snapshot_as_of, snapshot_by_id, watermark_at
from frazil.requests import FreshnessSpec
from frazil.serving.sql import Relation, TableRef
from frazil.storage import Journal
from frazil.tables import (
    LiveTail,
    SchemaMoved,
    TableDirectory,
    TableStream,
    check_mark,
    check_reached,
    source_of,
    until_committed,
)

_MOMENT_SECONDS = 0.02


class Resolver:
    """Finds the tables of a statement at the freshness that was asked for."""

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

    async def look_again(self) -> None:
        await self._directory.refresh()

    async def resolve(
        self, allowed: Sequence[tuple[TableRef, ReadGrant]], ask: FreshnessSpec, *, deadline: float, guess: bool
    ) -> list[TableSource]:
        """Every reference with its table, once all are as fresh as asked; raises when `deadline` passes before.

        With `guess`, a live tail is taken as it is known here while the bus is still being asked: `confirm` the cut.
        """
        if ask.freshness == "committed":
            await self._directory.refresh()
        finding = [self._source(ref, grant, ask, deadline, guess) for ref, grant in allowed]
        return [await finding[0]] if len(finding) == 1 else await _all_or_none(finding)

    async def _source(
        self, ref: TableRef, grant: ReadGrant, ask: FreshnessSpec, deadline: float, guess: bool
    ) -> TableSource:
        name = f"{ref.schema}.{ref.name}"
        table = await self._directory.table(name)
        if table.spec.kind == "entity":
            return await self._entity_source(ref, table, grant, ask, deadline, guess)
        mark = ask.min_token.marks.get(table.token_name)
        if mark is not None:
            check_mark(table, mark)
        pinned = await self._pinned(ref, table, ask)
        if pinned is not None:
            table = await self._directory.table(name)  # the one that has the snapshot, if it was just found
            _not_before(table, pinned, pinned.watermark, mark)
            return TableSource(ref, table, grant, pinned=pinned)
        return await self._newest(ref, table, grant, ask, deadline, guess)

    async def _newest(
        self, ref: TableRef, table: LakeTable, grant: ReadGrant, ask: FreshnessSpec, deadline: float, guess: bool
    ) -> TableSource:
        """The table as it is now, with its tail if the answer is to be live."""
        mark = ask.min_token.marks.get(table.token_name)
        if not table.spec.is_streamed:
            await self._directory.refresh()  # a load that is done must be seen, and no tail tells of it
            return TableSource(ref, await self._directory.table(table.name), grant)
        if mark is not None:
            await check_reached(self._stream_of(table), table, mark)
        if ask.freshness == "committed":
            if mark is not None:
                table = await self._committed(table, mark, ask, deadline)
            return TableSource(ref, table, grant)
        if guess and mark is None and (guessed := self._stream_of(table).tail_and_head()) is not None:
            tail, head = guessed
            if tail.extent(table.watermark).size <= self._max_tail_bytes:
                with contextlib.suppress(SchemaMoved, BusGap):
                    await tail.ready(table.spec, table.watermark)
                    return TableSource(ref, table, grant, tail=tail, head=head)
            head.cancel()
        return TableSource(ref, table, grant, tail=await self._live(table, mark, ask, deadline))

    async def _entity_source(
        self, ref: TableRef, base: LakeTable, grant: ReadGrant, ask: FreshnessSpec, deadline: float, guess: bool
    ) -> TableSource:
        """An entity is found by its history, and read on top of its base."""
        entity = await self._directory.entity(base)
        mark = ask.min_token.marks.get(base.name)
        if mark is not None:
            check_mark(entity.history, mark)
        version = ref.version
        if version is None and ref.as_of is None:
            version = ask.snapshot.get(base.name)
        if version is not None:
            snapshot = await self._by_id(base, version)
            base = await self._directory.table(base.name)
            history = (await self._directory.entity(base)).history
            _not_before(base, snapshot, watermark_at(base, snapshot.snapshot_id), mark)
            return TableSource(ref, history, grant, entity=EntitySnapshot(base, snapshot, pinned=True, alone=True))
        moment = ref.as_of or ask.as_of_table.get(base.name, ask.as_of)
        if moment is not None:
            await self._directory.refresh()
            entity = await self._directory.entity(await self._directory.table(base.name))
            pinned = snapshot_as_of(entity.history, moment)
            _not_before(base, pinned, watermark_at(entity.history, pinned.snapshot_id), mark)
            at = base_as_of(entity.base, entity.history, pinned, moment)
            return TableSource(ref, entity.history, grant, pinned=pinned, entity=at)
        found = await self._newest(ref, entity.history, grant, ask, deadline, guess)
        return replace(found, entity=EntitySnapshot(entity.base))

    async def _pinned(self, ref: TableRef, table: LakeTable, ask: FreshnessSpec) -> SnapshotInfo | None:
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

    async def _committed(self, table: LakeTable, mark: Mark, ask: FreshnessSpec, deadline: float) -> LakeTable:
        if table.watermark > mark.position:
            return table
        left = max(0.0, deadline - time.monotonic())
        with ask.waiting():
            table, done = await until_committed(self._directory, table.name, mark, timeout_seconds=left)
        if not done:
            raise _not_reached(table, mark, table.watermark)
        return table

    async def _live(self, table: LakeTable, mark: Mark | None, ask: FreshnessSpec, deadline: float) -> LiveTail:
        """The tail, holding every event that had its receipt when this was called, and the one of the mark."""
        if self._stream_of(table).is_warm:
            return await self._live_tail(table, mark, ask, deadline)
        with ask.waiting():
            return await self._live_tail(table, mark, ask, deadline)

    async def _live_tail(self, table: LakeTable, mark: Mark | None, ask: FreshnessSpec, deadline: float) -> LiveTail:
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
                with ask.waiting():
                    await asyncio.sleep(_MOMENT_SECONDS)
                table = await self._directory.table(table.name)
                continue
            await self._within_bounds(table, tail, ask, deadline)
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

    async def _within_bounds(self, table: LakeTable, tail: LiveTail, ask: FreshnessSpec, deadline: float) -> None:
        def fits(now: LakeTable) -> bool:
            return tail.extent(now.watermark).size <= self._max_tail_bytes

        table = await self._directory.table(table.name)
        if fits(table):
            return
        done = False
        if ask.wait_when_behind:
            left = max(0.0, deadline - time.monotonic())
            with ask.waiting():
                table, done = await self._directory.until(table.name, fits, timeout_seconds=left)
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

    async def confirm(self, sources: Sequence[TableSource], cut: Sequence[CutTable]) -> None:
        """Raise `CutMoved` if a guessed tail lacks something that was on the bus when the query began."""
        for source in sources:
            if source.head is not None:
                # A snapshot of the past, if the statement names one of the same table too, ends before the tail does.
                end = max(table.end or 0 for table in cut if table.token_name == source.table.token_name)
                if end < first_position(await source.head + 1):
                    raise CutMoved(f"{source.table.spec.short_name!r} is changing", hint="try again")

    def cut(self, sources: Sequence[TableSource]) -> tuple[list[Relation], list[CutTable]]:
        """Take the cut, now, from the tables as they were last seen."""
        return take_cut(sources, lambda table: self._directory.known(table.name, source_of(table)) or table)


async def _all_or_none(finding: Sequence[Coroutine[Any, Any, TableSource]]) -> list[TableSource]:
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
        hint="ask again with more time, or without min_token; GET /v1/status tells what the pipeline does",
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
        hint='try again in a moment, or ask with "freshness": "committed"',
        retry_after_seconds=2.0,
    )
