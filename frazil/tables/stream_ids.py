"""Ids of the stream of one table: which of them count, how far that is known, and what waits for its commit.

The events that wait are handed to the tail, in the stream's order and with the same verdict.

Everything here is derived from the table's rows and the bus, and made anew at each start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.bus import Delivery, Stream
from frazil.errors import BusGap, Unavailable
from frazil.events import (
    CLOCK_SKEW_US,
    IS_NEW,
    IdWindow,
    Ints,
    Keys,
    StreamMessage,
    complete_messages,
    decode,
    first_position,
    id_keys,
    sequence_of,
)
from frazil.lake.catalog import LakeTable
from frazil.tables.live_tail import LiveTail
from frazil.tables.warm_up_progress import WarmUpProgress

log = logging.getLogger(__name__)

_IDS_OF_A_MESSAGE = 500
"""An estimate, for the progress of a warm-up: how many events a message has is known when it is read."""
_REWARM_TRIES = 5
_MOMENT_SECONDS = 0.01
# Merging the index costs more than a thread's hop from here on.
_INLINE_IDS = 300_000
_SKEW = timedelta(microseconds=CLOCK_SKEW_US)
_BEGINNING = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Backlog:
    """Events on the bus that are not committed yet."""

    events: int
    oldest_received_us: int | None


class StreamIds:
    """The ids of one stream, up to `head`. Used by one task at a time."""

    def __init__(
        self,
        stream: Stream,
        load_table: Callable[[], LakeTable],
        *,
        tail: LiveTail,
        window_seconds: float,
        spill_folder: Path | None,
    ) -> None:
        self.tail = tail
        self.progress = WarmUpProgress()
        self.head = -1
        """Every message up to this sequence is accounted for."""
        self._stream = stream
        self._load_table = load_table
        self._window = IdWindow(window_seconds, spill_folder=spill_folder)
        self._window_length = timedelta(seconds=window_seconds)
        self._known_at = _BEGINNING
        self._undecided: list[Delivery] = []
        self._uncommitted: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._window)

    async def refresh(self) -> None:
        """Take in all that was written since, from the bus, or from the table where the bus has trimmed it already."""
        for _ in range(_REWARM_TRIES):
            asked_at = datetime.now(UTC)
            try:
                if self.head < 0:
                    await self._take_table()
                await self._take_bus()
                self._known_at = asked_at
                return
            except BusGap:
                # Trimmed means committed: then the table has the ids. If it has not, the gap is real.
                if not await self._take_table():
                    raise
        await self._take_bus()

    async def _take_table(self) -> bool:
        """Take in the committed rows that are not known yet; whether there were messages to skip by it."""
        table = await asyncio.to_thread(self._load_table)
        committed = sequence_of(table.watermark) - 1
        if committed <= self.head:
            return False
        oldest = max(datetime.now(UTC) - self._window_length, self._known_at) - _SKEW
        waiting = max(0, await self._stream.head() - committed)
        self.progress.begin(table.rows_since(oldest) + waiting * _IDS_OF_A_MESSAGE)
        count = await asyncio.to_thread(self._take_rows, table, oldest)
        log.info("ids of committed rows read", extra={"table": table.name, "ids": count})
        self.head = committed
        self._undecided = []
        self.tail.start_at(first_position(committed + 1))
        return True

    def _take_rows(self, table: LakeTable, oldest: datetime) -> int:
        first_unknown = first_position(self.head + 1)
        count = 0
        for rows in table.ids_since(oldest):
            positions: Ints = rows.column("_seq").to_numpy()
            self.progress.advance(len(positions))
            new = positions >= first_unknown
            if not new.all():
                rows = rows.filter(pa.array(new))
                positions = positions[new]
            self._window.add(id_keys(rows.column("_id")), positions, received_us(rows))
            count += len(positions)
        return count

    async def _take_bus(self) -> None:
        while page := await self._read_on():
            waiting = self._undecided + page
            counted, decided = complete_messages(waiting)
            taken = await asyncio.to_thread(self._take_messages, counted) if counted else []
            for sequence, events, counts in taken:
                self.tail.add(sequence, events, counts)
            self.tail.reach(first_position(decided))
            self._undecided = [delivery for delivery in waiting if delivery.sequence >= decided]
            self.progress.advance((page[-1].sequence - self.head) * _IDS_OF_A_MESSAGE)
            self.head = page[-1].sequence

    async def _read_on(self) -> list[Delivery]:
        """The next messages. At the end of a stream that others write to, a read may fail for a moment."""
        try:
            return await self._stream.read(self.head + 1)
        except Unavailable:
            await asyncio.sleep(_MOMENT_SECONDS)
            return await self._stream.read(self.head + 1)

    def _take_messages(self, deliveries: Sequence[StreamMessage]) -> list[tuple[int, pa.Table, npt.NDArray[np.bool_]]]:
        """Judge these messages; of each its sequence, its events, and which of them count."""
        taken = []
        for delivery in deliveries:
            events = decode(delivery.body)
            keys, received = id_keys(events.column("_id")), received_us(events)
            positions = first_position(delivery.sequence) + np.arange(len(keys), dtype=np.int64)
            counts = self._window.judge(keys, received) == IS_NEW
            self._window.add(keys[counts], positions[counts], received[counts])
            self._note(delivery.sequence, received)
            taken.append((delivery.sequence, events, counts))
        return taken

    def judge(self, keys: Keys, received: Ints) -> Ints:
        return self._window.judge(keys, received)

    def forget(self, positions: Ints) -> None:
        """Let the ids at these positions count again."""
        self._window.forget(positions)

    async def add(self, first: int, contents: Sequence[pa.Table], keys: Keys, positions: Ints, received: Ints) -> None:
        """Take in what we have just written: messages from sequence `first` on, every event of which counts."""
        self._undecided = []
        at = 0
        for number, events in enumerate(contents):
            self._note(first + number, received[at : at + events.num_rows])
            self.tail.add(first + number, events)
            at += events.num_rows
        self.head = first + len(contents) - 1
        self.tail.reach(first_position(self.head + 1))
        self._known_at = datetime.now(UTC)
        if len(self._window) < _INLINE_IDS:
            self._window.add(keys, positions, received)
        else:
            await asyncio.to_thread(self._window.add, keys, positions, received)

    def _note(self, sequence: int, received: Ints) -> None:
        if len(received) and (not self._uncommitted or self._uncommitted[-1][0] < sequence):
            self._uncommitted.append((sequence, len(received), int(received.min())))

    def backlog(self, watermark: int) -> Backlog:
        """What of the known part of the stream is at or above this watermark."""
        below = sequence_of(watermark)
        while self._uncommitted and self._uncommitted[0][0] < below:
            self._uncommitted.popleft()
        self.tail.forget_below(watermark)
        oldest = min((entry[2] for entry in self._uncommitted), default=None)
        return Backlog(sum(entry[1] for entry in self._uncommitted), oldest)


def received_us(events: pa.RecordBatch | pa.Table) -> Ints:
    """The times of arrival, in microseconds since 1970."""
    column = events.column("_received_at")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    times: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times
