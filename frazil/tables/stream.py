"""Table stream: the stream that feeds one table, with its ids, its head, its live tail and its backlog.

The first use warms it up: the ids of the window are read from the table and the bus. From then on it follows the bus
when somebody needs that. Readers and the writer of a gateway share it. Whoever changes the ids holds `turn`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from frazil.bus import EventBus, Stream, StreamMissing
from frazil.errors import BusGap, BusReplaced, FrazilError, Unavailable, WatermarkTorn
from frazil.events import sequence_of
from frazil.events.declaration import dead_letters_of
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import dead_positions
from frazil.tables.directory import TableDirectory, source_of
from frazil.tables.errors import TableReplaced
from frazil.tables.live_tail import LiveTail, TailMemory
from frazil.tables.stream_ids import Backlog, StreamIds
from frazil.tables.warm_up_progress import WarmUpProgress

log = logging.getLogger(__name__)
_T = TypeVar("_T")

TAIL_BYTES = 256 << 20
_UNKNOWN_SECONDS = 2.0
_MOST_RETRY_SECONDS = 60.0
"""A longer time would be a guess: the client tries again then, and gets an estimate from what was read meanwhile."""


@dataclass(frozen=True)
class WarmStream:
    """The stream on the bus, and its ids up to the head that is known here."""

    stream: Stream
    ids: StreamIds


class TableStream:
    """Bound to one table, as long as it is fed from one stream. A table that was replaced gets another one."""

    def __init__(
        self,
        table: LakeTable,
        *,
        bus: EventBus,
        directory: TableDirectory,
        window_seconds: float,
        spill_folder: Path | None = None,
        warm_up_slots: asyncio.Semaphore | None = None,
        seconds_ahead: Callable[[], float | None] = lambda: None,
        tail_memory: TailMemory | None = None,
    ) -> None:
        self.table = table
        """As it was when the stream was opened; its columns may have changed since."""
        self.source = source_of(table)
        self.directory = directory
        self.turn = asyncio.Lock()
        self.is_about_to_grow: Callable[[], bool] = lambda: False
        """Whether the writer of this process has events for it; set by the writer."""
        self._bus = bus
        self._window_seconds = window_seconds
        self._spill_folder = spill_folder
        self._slots = warm_up_slots or asyncio.Semaphore(1)
        self._seconds_ahead = seconds_ahead
        """How long the warm-ups will take that have the slots now; None where that is not known."""
        self._tail_memory = tail_memory or TailMemory(TAIL_BYTES)
        self._warming: asyncio.Task[WarmStream] | None = None
        self._following: asyncio.Task[None] | None = None
        self._warm: WarmStream | None = None
        self._progress: WarmUpProgress | None = None
        """Of the warm-up, while there is one and it has begun."""
        self._warming_since: float | None = None
        self.warm_up_error: FrazilError | None = None
        """Of the last warm-up, if it failed."""
        self._letters_at: str | None = None
        """The state of the dead letters whose ids are forgotten."""
        self.is_retired = False

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def is_warm(self) -> bool:
        return self._warm is not None

    @property
    def warming_seconds(self) -> float:
        """For how long a warm-up has been under way or waited for its slot; 0 while there is none."""
        return 0.0 if self._warming_since is None else time.monotonic() - self._warming_since

    @property
    def warm_up_seconds_left(self) -> float | None:
        return None if self._progress is None else self._progress.seconds_left

    async def warm(self, patience_seconds: float) -> WarmStream:
        """The stream, once the ids of the window are known. Raises `Unavailable` when that takes longer."""
        if self._warm is not None:
            return self._warm
        if self.is_retired:
            raise self.replaced()
        if self._warming is None or self._warming.done():
            self._warming = asyncio.create_task(self._warm_up(), name=f"warm up {self.name}")
        # By a name of our own: where it fails, the next caller starts another before this one is woken.
        warming = self._warming
        done, _ = await asyncio.wait([warming], timeout=patience_seconds)
        if not done:
            raise self._still_warming()
        return self._outcome(warming)

    def _still_warming(self) -> Unavailable:
        """With the time that the rest will take, from what was read until now."""
        progress = self._progress
        left = self._seconds_ahead() if progress is None else progress.seconds_left
        share = "" if progress is None or progress.done is None else f", {progress.done:.0%} of them are known"
        return Unavailable(
            f"the event ids of {self.table.spec.short_name!r} are still being read{share}",
            code="warming",
            hint="try again after the time that Retry-After says; nothing of this request was kept",
            retry_after_seconds=_UNKNOWN_SECONDS if left is None else min(max(left, 1.0), _MOST_RETRY_SECONDS),
            details={
                "done": None if progress is None or progress.done is None else round(progress.done, 3),
                "seconds_left": None if left is None else round(left, 1),
            },
        )

    async def _warm_up(self) -> WarmStream:
        started = self._warming_since = time.monotonic()
        try:
            async with self._slots:
                stream = await open_stream(self._bus, self.table)
                ids = await self._read_ids(stream)
        except FrazilError as error:
            self.warm_up_error = self.with_repair(error)
            raise self.warm_up_error from error
        finally:
            self._progress = self._warming_since = None
        self._warm = WarmStream(stream, ids)
        self.warm_up_error = None
        seconds = round(time.monotonic() - started, 3)
        log.info("stream warmed up", extra={"table": self.name, "ids": len(ids), "seconds": seconds})
        return self._warm

    async def _read_ids(self, stream: Stream) -> StreamIds:
        tail = LiveTail(stream, self._tail_memory)
        ids = StreamIds(
            stream,
            self.load_table,
            tail=tail,
            window_seconds=self._window_seconds,
            spill_folder=self._spill_folder,
        )
        self._progress = ids.progress
        try:
            await ids.refresh()
        except BaseException:
            # All tails share the memory: a warm-up that failed or was cancelled gives back what its tail took.
            tail.release()
            raise
        return ids

    def load_table(self) -> LakeTable:
        """The table as it is now, if it is still the one of this stream. Blocks."""
        table = self.directory.lake.table(self.name)
        if source_of(table) != self.source:
            raise self.replaced()
        return table

    async def head(self) -> int:
        """The last sequence on the bus."""
        stream = self._warm.stream if self._warm else await open_stream(self._bus, self.table)
        return await stream.head()

    async def has_come_to(self, position: int) -> bool:
        """Whether the stream has a message at this position. The bus is asked only if it is not known here."""
        sequence = sequence_of(position)
        if self._warm is not None and sequence <= self._warm.ids.head:
            return True
        return sequence <= await self.head()

    def waiting(self) -> Backlog | None:
        """The backlog as far as it is known, without a request to the bus; None while nothing is known."""
        table = self.directory.known(self.name, self.source)
        if self._warm is None or table is None:
            return None
        try:
            return self._warm.ids.backlog(table.watermark)
        except WatermarkTorn:
            return None

    async def backlog(self, watermark: int, *, patience_seconds: float) -> Backlog | None:
        """The events that wait for their commit; None when they are not known in time."""
        try:
            warm = await self.warm(patience_seconds)
        except Unavailable:
            return None
        if not await self._follow(warm, patience_seconds):
            return None
        return warm.ids.backlog(watermark)

    def tail_and_head(self) -> tuple[LiveTail, asyncio.Task[int]] | None:
        """The tail as it is known now, and a request for the head of the stream: the tail may lack what is below it.

        None while the stream is not warm, or is about to grow by our own writer: then the tail would lack something.
        """
        if self._warm is None or self.is_about_to_grow() or self.turn.locked():
            return None
        head = asyncio.create_task(self._warm.stream.head(), name=f"head of {self.name}")
        head.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        return self._warm.ids.tail, head

    async def tail_up_to_head(self, *, patience_seconds: float) -> LiveTail | None:
        """The tail, with every event in it that has its receipt when this is called; None when that takes longer."""
        give_up_at = time.monotonic() + patience_seconds
        warm = await self.warm(patience_seconds)
        # The bus is asked even where all writing goes through here: another gateway may have given receipts too.
        head = await warm.stream.head()
        while warm.ids.head < head:
            if not await self._follow(warm, give_up_at - time.monotonic()):
                return None
        return warm.ids.tail

    def follow_soon(self) -> None:
        """Read on to the end of the stream, for nobody in particular: what others wrote becomes known."""
        if self._warm is not None and not self.is_retired and (self._following is None or self._following.done()):
            self._following = asyncio.create_task(self._read_on(self._warm), name=f"read on {self.name}")
            self._following.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _follow(self, warm: WarmStream, patience_seconds: float) -> bool:
        """Read on to the end of the stream; whether that was done in time."""
        if self.is_retired:
            raise self.replaced()
        # In a task of its own: giving up on the answer must not break off the reading, which a thread may be doing.
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._read_on(warm), name=f"read on {self.name}")
        following = self._following
        done, _ = await asyncio.wait([following], timeout=max(patience_seconds, 0.0))
        if done:
            self._outcome(following)
        return bool(done)

    async def _read_on(self, warm: WarmStream) -> None:
        async with self.turn:
            await self.forget_dead_letters(warm)
            await warm.ids.refresh()

    async def forget_dead_letters(self, warm: WarmStream) -> None:
        """Let the ids of dead letters count again, as the pipeline does: after repair they are sent again.

        For the holder of `turn`.
        """
        letters = self.directory.seen(dead_letters_of(self.name))
        if letters is None or letters.metadata_location == self._letters_at:
            return
        dead = await asyncio.to_thread(dead_positions, letters, self.table.stream_identity)
        warm.ids.forget(np.array(sorted(dead), dtype=np.int64))
        self._letters_at = letters.metadata_location

    def _outcome(self, task: asyncio.Task[_T]) -> _T:
        """The result of a shared task. That it was cancelled does not cancel those who waited for it."""
        if task.cancelled():
            raise self.replaced()
        return task.result()

    def retire(self) -> None:
        """Begin nothing any more: whoever comes from now on gets `TableReplaced`."""
        self.is_retired = True

    async def close(self, writing: asyncio.Task[None] | None = None) -> None:
        """Stop, and give the memory of the tail back. `writing` is the task of the writer, stopped in the same turn."""
        self.retire()
        async with self.turn:
            for task in (writing, self._warming, self._following):
                if task is not None:
                    task.cancel()
        if self._warm is not None:
            self._warm.ids.tail.release()

    def replaced(self) -> TableReplaced:
        return TableReplaced(f"{self.table.spec.short_name!r} was just dropped or replaced", hint="try again")

    def with_repair(self, error: FrazilError) -> FrazilError:
        """The same error; where the bus has lost the stream, or a part of it, with the command that repairs it."""
        if isinstance(error, StreamMissing):
            return _stream_lost(self.table)
        if isinstance(error, BusGap | BusReplaced):
            error.hint = _repair_hint(self.table)
        return error


async def open_stream(bus: EventBus, table: LakeTable) -> Stream:
    """The stream that the table is fed from, and no other under its name."""
    try:
        stream = await bus.open(table.stream)
    except StreamMissing as error:
        raise _stream_lost(table) from error
    if stream.identity != table.stream_identity:
        raise BusReplaced(
            f"the bus has another stream for {table.spec.short_name!r} than the one that the table was fed from",
            hint=_repair_hint(table),
            details={"expected": table.stream_identity, "found": stream.identity},
        )
    return stream


def _stream_lost(table: LakeTable) -> BusReplaced:
    return BusReplaced(
        f"the bus has no stream for {table.spec.short_name!r}: it was lost or replaced", hint=_repair_hint(table)
    )


def _repair_hint(table: LakeTable) -> str:
    return (
        f"bring the old bus back, or run `frazil repair bus {table.spec.short_name}` "
        "to see what is lost and go on without it"
    )
