"""Committer of one table: the next range of the stream becomes one snapshot, exactly once.

The only truth is the table's watermark. A committer that dies anywhere leaves nothing that its successor has to know:
it reads the watermark and continues with the stream from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.bus import Delivery, Stream
from frazil.crash import crash_point
from frazil.errors import BusGap, BusReplaced, FrazilError, Unavailable
from frazil.events import (
    CLOCK_SKEW_US,
    IS_NEW,
    ROWS,
    URGENT,
    IdWindow,
    Ints,
    Keys,
    StreamMessage,
    Token,
    complete_messages,
    first_position,
    id_keys,
    rows,
    sequence_of,
)
from frazil.events.declaration import entity_of
from frazil.lake.commit import Outcome
from frazil.pipeline.commit.isolation import RefusedEvent, control_row, isolate
from frazil.pipeline.commit.row_errors import RowsRefused
from frazil.pipeline.commit.suspects import Suspects, lost_with
from frazil.pipeline.commit.target import Commit, CommitTarget, CommitTimes, TableState

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_STAGE_TRIES = 8
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class BatchLimits:
    """When a batch closes."""

    max_rows: int = 500_000
    max_bytes: int = 32 << 20
    max_age_seconds: float = 1.0


@dataclass(frozen=True)
class Committed:
    """The result of one cycle."""

    batch: str
    rows: int
    duplicates: int
    dead_letters: int
    """Events of the range that could not be committed."""
    messages: int
    watermark: int
    token: str
    """The token that is reached: an older token of this table is visible."""
    snapshot_id: int | None
    seconds: float
    times: CommitTimes


@dataclass(frozen=True)
class DecodedBatch:
    """A range of the stream as rows of `schema`, with all that its judgement needs."""

    schema: pa.Schema
    events: pa.Table
    keys: Keys
    received: Ints


@dataclass(frozen=True)
class ReadAhead:
    """The batch from message `lo` on, read and decoded before its turn."""

    lo: int
    deliveries: list[Delivery]
    decoded: DecodedBatch


class Committer:
    """Commits one table. `cycle` is the whole protocol; call it again and again."""

    def __init__(
        self,
        target: CommitTarget,
        stream: Stream,
        *,
        window_seconds: float,
        limits: BatchLimits | None = None,
        executor: Executor | None = None,
        make_window: Callable[[], IdWindow] | None = None,
        suspects: Suspects | None = None,
    ) -> None:
        self._target = target
        self._stream = stream
        self._limits = limits or BatchLimits()
        self._executor = executor
        self._make_window = make_window or (lambda: IdWindow(window_seconds))
        self._ids: tuple[int, IdWindow] | None = None
        """The ids that count below a watermark, and that watermark."""
        self._ahead: asyncio.Task[ReadAhead | None] | None = None
        self._suspects = suspects
        self._committed: TableState | None = None
        """The table as the last cycle left it. Only the cycle right after a commit begins with it."""
        self._dead: set[int] | None = None
        """The positions from the watermark on that have a dead letter; None before the first look."""
        self.behind = False
        """Whether the last batch was closed because it was full: more waits on the bus."""

    async def cycle(self, *, idle_seconds: float = 5.0, draining: bool = False) -> Committed | None:
        """Wait for events, commit one batch of them, trim the bus. None when there was nothing to do."""
        base, self._committed = self._committed, None
        if base is None:
            base = await self._blocking(self._target.load)
        lo = sequence_of(base.watermark)
        try:
            await self._check(base)
            ahead = await self._read_ahead_from(lo)
            if ahead is not None:
                deliveries = ahead.deliveries
            else:
                deliveries = await self._collect(lo, idle_seconds=idle_seconds, draining=draining)
        except (BusGap, BusReplaced):
            now = await self._blocking(self._target.load)
            if (now.watermark, now.stream_identity) == (base.watermark, base.stream_identity):
                raise
            # Another committer has committed these messages meanwhile and trimmed the bus, or the table was repaired.
            return None
        self.behind = self._is_full(*_weight(deliveries))
        held = self._held(base)
        if held is not None:
            ahead, deliveries = None, _first(deliveries, held, lo)
        is_smallest = len(_first(deliveries, 1, lo)) == len(deliveries)
        counted, hi = complete_messages(deliveries)
        if not deliveries or hi <= lo:
            return None
        started = time.monotonic()
        crash_point("after_read_before_decode")
        # Loaded again after reading: whatever columns these events have, the gateway added them to the table first.
        base = await self._blocking(self._target.load)
        if sequence_of(base.watermark) != lo:
            return None  # another committer was here; begin again from where it left the table
        dead = await self._dead_from(base)
        times = CommitTimes()
        for _ in range(_STAGE_TRIES):
            schema = base.spec.row_schema()
            if ahead is not None and ahead.decoded.schema.equals(schema):
                batch = ahead.decoded
            else:
                batch = await self._blocking(partial(decoded, counted, schema))
            verdict = await self._blocking(partial(self._judge, base, batch))
            counts = verdict == IS_NEW
            new = counts & ~np.isin(batch.events["_seq"].to_numpy(), list(dead)) if dead else counts
            rows_to_commit = batch.events if new.all() else batch.events.filter(pa.array(new))
            commit = Commit(_batch_id(lo, hi), base.watermark, first_position(hi), rows_to_commit, times)
            try:
                outcome, after = await self._commit(base, commit, messages=hi - lo)
            except RowsRefused as error:
                dead |= await self._refused(base, rows_to_commit, error, messages=hi - lo, is_smallest=is_smallest)
                continue
            if outcome is not Outcome.STAGE_AGAIN:
                break
            if sequence_of(after.watermark) != lo:
                return None  # not maintenance: another committer took a part of this range, and these rows hold it too
            base = after
        else:
            raise Unavailable(f"{base.name} moves faster than it can be staged", code="stage_conflict")
        if outcome is Outcome.SUPERSEDED:
            self._ids = None
            raise Unavailable(
                f"another committer is at work on {base.name}: it moved the watermark to {after.watermark}",
                code="superseded",
            )
        if outcome is Outcome.PUBLISHED:
            self._remember(commit, batch, new)
        else:
            self._ids = None
        await self._trim(after)
        self._committed = after
        return Committed(
            batch=commit.batch,
            rows=rows_to_commit.num_rows,
            duplicates=int((~counts).sum()),
            dead_letters=int((counts & ~new).sum()),
            messages=hi - lo,
            watermark=commit.watermark,
            token=str(Token.of(token_name(base), self._stream.identity, commit.watermark - 1)),
            snapshot_id=after.snapshot_id,
            seconds=time.monotonic() - started,
            times=times,
        )

    async def _check(self, base: TableState) -> None:
        """Raise if the bus contradicts the table: to skip the difference would lose events silently."""
        repair = f"`frazil repair bus {base.spec.short_name}` shows what is lost and continues from there"
        if self._stream.identity != base.stream_identity:
            raise BusReplaced(f"the stream of {base.name} is another one than the table was fed from", hint=repair)
        lo = sequence_of(base.watermark)
        first, head = await self._stream.first(), await self._stream.head()
        if first > lo:
            raise BusGap(
                f"{base.name} is committed up to message {lo - 1}, and the bus begins at {first}: "
                f"{first - lo} messages are gone",
                hint=repair,
            )
        if head < lo - 1:
            raise BusReplaced(
                f"{base.name} is committed up to message {lo - 1}, and the bus ends at {head}: it is an older copy",
                hint=repair,
            )

    async def _commit(self, base: TableState, commit: Commit, *, messages: int) -> tuple[Outcome, TableState]:
        """Commit, and read what comes next meanwhile: Spark leaves this process idle for as long as it writes."""
        if error := self._lost_with(base, commit.rows):
            raise error
        if self.behind and self._ahead is None and self._executor is not None and self._held(base) is None:
            following = self._read_ahead(sequence_of(commit.watermark), base.spec.row_schema())
            self._ahead = asyncio.create_task(following, name=f"read ahead for {base.name}")
        try:
            async with self._stage(base, commit.rows, messages):
                return await self._blocking(lambda: self._target.commit(base, commit))
        except BaseException:
            if self._ahead is not None:
                self._ahead.cancel()
            raise

    async def _refused(
        self, base: TableState, rows: pa.Table, error: RowsRefused, *, messages: int, is_smallest: bool
    ) -> set[int]:
        """Find the rows that cannot be staged and write them to the dead letters; their positions.

        None at all where the whole passes by now. Where every part passes and the whole does not, fewer messages are
        tried next; a batch that cannot have fewer (`is_smallest`) leaves its second half to the dead letters.
        """

        async def attempt(part: pa.Table) -> RowsRefused | None:
            if lost := self._lost_with(base, part):
                return lost
            try:
                async with self._stage(base, part, messages):
                    await self._blocking(lambda: self._target.attempt(part))
            except RowsRefused as refused:
                return refused
            return None

        try:
            found = await isolate(rows, attempt, control_row(base.spec))
        except FrazilError:  # any other error is of an engine that could not forget them either
            await self._blocking(self._target.forget_attempts)
            raise
        await self._blocking(self._target.forget_attempts)
        if found is None:
            return set()
        if not found and not is_smallest:
            if self._suspects is not None:
                self._suspects.too_large(base.name, messages)
            raise error
        if not found:
            too_large = RowsRefused(
                f"one message of {rows.num_rows:,} events cannot be staged as a whole: {error.message}",
                code="batch_too_large",
                hint="resend them: they go in smaller requests",
            )
            found = [RefusedEvent(rows.slice(rows.num_rows // 2), too_large)]
        now = datetime.now(UTC)
        letters = [letter for part in found for letter in part.letters(base.spec, now)]
        await self._blocking(lambda: self._target.add_dead_letters(base, letters))
        return {letter.position for letter in letters}

    async def _dead_from(self, base: TableState) -> set[int]:
        """The dead letters that an earlier process left above the watermark, and those of this one."""
        if self._dead is None:
            self._dead = await self._blocking(lambda: self._target.dead_positions(base))
        self._dead = {position for position in self._dead if position >= base.watermark}
        return self._dead

    def _held(self, base: TableState) -> int | None:
        """How many messages a batch may take, if the table is held back."""
        suspect = self._suspects.of(base.name) if self._suspects is not None else None
        return suspect.messages if suspect is not None else None

    def _lost_with(self, base: TableState, rows: pa.Table) -> RowsRefused | None:
        suspect = self._suspects.of(base.name) if self._suspects is not None else None
        return lost_with(suspect, rows, self._dead or ())

    def _stage(self, base: TableState, rows: pa.Table, messages: int) -> AbstractAsyncContextManager[None]:
        return self._suspects.stage(base.name, rows, messages) if self._suspects is not None else nullcontext()

    async def _read_ahead(self, lo: int, schema: pa.Schema) -> ReadAhead | None:
        """The next batch, if the backlog fills one. Judging it has to wait until the one before it is committed."""
        deliveries = await self._collect(lo, idle_seconds=0.0, draining=True)
        if not self._is_full(*_weight(deliveries)):
            return None
        return ReadAhead(
            lo, deliveries, await self._blocking(lambda: decoded(complete_messages(deliveries)[0], schema))
        )

    async def _read_ahead_from(self, lo: int) -> ReadAhead | None:
        """What was read ahead, if it begins here. A failure is forgotten: reading in turn will meet it again."""
        if self._ahead is None:
            return None
        reading, self._ahead = self._ahead, None
        (ahead,) = await asyncio.gather(reading, return_exceptions=True)
        return ahead if isinstance(ahead, ReadAhead) and ahead.lo == lo else None

    async def _collect(self, lo: int, *, idle_seconds: float, draining: bool) -> list[Delivery]:
        """The messages of one batch: it closes on rows, bytes, age, or because somebody waits for one of them."""
        if await self._stream.wait(lo - 1, timeout_seconds=idle_seconds) < lo:
            return []
        opened = time.monotonic()
        deliveries: list[Delivery] = []
        size = held = 0
        while True:
            following = lo + len(deliveries)
            more = await self._stream.read(following, max_bytes=self._limits.max_bytes // 4)
            deliveries += more
            more_bytes, more_rows = _weight(more)
            size, held = size + more_bytes, held + more_rows
            full = self._is_full(size, held) and complete_messages(deliveries)[1] > lo
            if full or (not more and self._closes(deliveries, opened, draining=draining)):
                return deliveries
            if not more:
                left = self._limits.max_age_seconds - (time.monotonic() - opened)
                await self._stream.wait(lo + len(deliveries) - 1, timeout_seconds=max(0.0, left))

    def _is_full(self, size: int, held: int) -> bool:
        return size >= self._limits.max_bytes or held >= self._limits.max_rows

    def _closes(self, deliveries: list[Delivery], opened: float, *, draining: bool) -> bool:
        urgent = any(delivery.headers.get(URGENT) for delivery in deliveries)
        return draining or urgent or time.monotonic() - opened >= self._limits.max_age_seconds

    def _judge(self, base: TableState, batch: DecodedBatch) -> Ints:
        if len(batch.keys) == 0:
            # Only a group that broke off: no time of receipt says which ids to read from the table.
            return np.empty(0, dtype=np.int64)
        return self._window_at(base, batch.received).judge(batch.keys, batch.received)

    def _window_at(self, base: TableState, received: Ints) -> IdWindow:
        """The ids below the table's watermark: kept from commit to commit, read from the table where they are not.

        Read again too when events come whose repeats may be older than what is kept, as from a clock that is late.
        """
        if self._ids is not None and self._ids[0] == base.watermark and self._ids[1].covers(received):
            return self._ids[1]
        window = self._make_window()
        window.complete_since_us = int(received.min()) - window.window_us - CLOCK_SKEW_US
        for known in self._target.ids_since(_EPOCH + timedelta(microseconds=window.complete_since_us)):
            window.add(
                id_keys(known.column("_id")),
                known.column("_seq").to_numpy(),
                known.column("_received_at").cast(pa.int64()).to_numpy(),
            )
        self._ids = (base.watermark, window)
        return window

    def _remember(self, commit: Commit, batch: DecodedBatch, new: npt.NDArray[np.bool_]) -> None:
        if self._ids is None or self._ids[0] != commit.previous_watermark:
            return  # nothing had to be judged
        window = self._ids[1]
        window.add(batch.keys[new], batch.events["_seq"].to_numpy()[new], batch.received[new])
        self._ids = (commit.watermark, window)

    async def _trim(self, table: TableState) -> None:
        """Let the bus forget what is committed. A failure here costs space, never events."""
        try:
            await self._stream.trim(sequence_of(table.watermark))
        except Unavailable as error:
            log.warning("bus trim failed: %s", error, extra={"table": table.name})
        crash_point("after_trim")

    async def _blocking(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def token_name(table: TableState) -> str:
    """The name of the table in tokens: a history has the name of its entity."""
    return entity_of(table.name) if table.spec.kind == "history" else table.name


def _weight(deliveries: Sequence[Delivery]) -> tuple[int, int]:
    """Bytes and events."""
    size = sum(len(delivery.body) for delivery in deliveries)
    return size, sum(int(delivery.headers.get(ROWS, 0)) for delivery in deliveries)


def _first(deliveries: list[Delivery], messages: int, lo: int) -> list[Delivery]:
    """So many messages from the beginning, or as many more as their first group takes."""
    for count in range(messages, len(deliveries)):
        if complete_messages(deliveries[:count])[1] > lo:
            return deliveries[:count]
    return deliveries


def decoded(deliveries: Sequence[StreamMessage], schema: pa.Schema) -> DecodedBatch:
    events = rows(deliveries, schema)
    received = events["_received_at"].cast(pa.int64()).to_numpy()
    return DecodedBatch(schema, events, id_keys(events["_id"]), received)


def _batch_id(lo: int, hi: int) -> str:
    """Names the range, and the attempt: a range that is staged again is another snapshot."""
    return f"{lo}-{hi - 1}-{uuid.uuid4().hex[:8]}"
