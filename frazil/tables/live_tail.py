"""Live tail of one table: the events on the bus that no snapshot has yet, as rows.

`StreamIds` feeds it while it judges the stream, so that what counts here is what the pipeline will commit. A tail is
one stretch of the stream without a hole, from `complete_from` to `end`; whoever reads it begins at a watermark at or
above `complete_from`. Messages beyond the memory that all tails share stay on the bus, and are read when somebody asks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.bus import Stream
from frazil.errors import Unavailable
from frazil.events import Ints, conform, decode, first_position, sequence_of
from frazil.events.declaration import TableSpec
from frazil.tables.errors import SchemaMoved

# Joining more rows than this is left to a thread: the loop answers others meanwhile.
_INLINE_ROWS = 10_000


class TailMemory:
    """What the tails of one gateway hold together."""

    def __init__(self, max_bytes: int) -> None:
        self.free_bytes = max_bytes


@dataclass(frozen=True)
class _Message:
    sequence: int
    rows: int
    size: int
    events: pa.Table | None
    """None while they are left on the bus."""
    counts: npt.NDArray[np.bool_] | None
    """Which of its events count; None means that all do."""


@dataclass(frozen=True)
class _Block:
    """Messages that somebody has read, joined: scanning many small ones costs more than copying them once."""

    rows: pa.Table
    positions: Ints
    size: int


@dataclass(frozen=True)
class Extent:
    """How much of a tail lies at or above a watermark."""

    rows: int
    size: int


class LiveTail:
    """Fed and read on the event loop. `ready` brings what was fed so far into the form that `rows` reads."""

    def __init__(self, stream: Stream, memory: TailMemory) -> None:
        self.complete_from = 0
        self.end = 0
        """Every position below it, from `complete_from` on, is decided and here."""
        self.ready_to = 0
        """The same of what `rows` reads."""
        self._stream = stream
        self._memory = memory
        self._blocks: list[_Block] = []
        self._messages: deque[_Message] = deque()
        self._joining = asyncio.Lock()

    def start_at(self, position: int) -> None:
        """Forget everything and begin here: what lies before is committed."""
        self.forget_below(max(position, self.end))
        self.complete_from = self.end = self.ready_to = position

    def add(self, sequence: int, events: pa.Table, counts: npt.NDArray[np.bool_] | None = None) -> None:
        """Take in a message that counts, or of it the events that do."""
        size = events.nbytes
        rows = events.num_rows if counts is None else int(counts.sum())
        keep = size <= self._memory.free_bytes
        if keep:
            self._memory.free_bytes -= size
        self._messages.append(_Message(sequence, rows, size, events if keep else None, counts))

    def reach(self, position: int) -> None:
        """Say that the stream is decided up to here."""
        self.end = max(self.end, position)

    def release(self) -> None:
        """Give the memory back: nobody reads this tail any longer."""
        self.forget_below(self.end)

    def forget_below(self, watermark: int) -> None:
        """Drop what a snapshot has."""
        while self._blocks and int(self._blocks[0].positions[-1]) < watermark:
            self._memory.free_bytes += self._blocks.pop(0).size
        below = sequence_of(watermark)
        while self._messages and self._messages[0].sequence < below:
            message = self._messages.popleft()
            self._memory.free_bytes += message.size if message.events is not None else 0
        self.complete_from = max(self.complete_from, min(watermark, self.end))

    def extent(self, watermark: int) -> Extent:
        rows = size = 0
        for block in self._blocks:
            inside = len(block.positions) - int(np.searchsorted(block.positions, watermark))
            rows += inside
            size += block.size * inside // len(block.positions)
        below = sequence_of(watermark)
        for message in self._messages:
            if message.sequence >= below:
                rows += message.rows
                size += message.size
        return Extent(rows, size)

    async def ready(self, spec: TableSpec, watermark: int) -> None:
        """Join what was fed since the last time, reading from the bus what was left there and is not committed.

        Raises `SchemaMoved` when an event has a column that `spec` lacks: another gateway has added it a moment ago;
        and `BusGap` when what was left on the bus is gone: it was committed since, or it is lost.
        """
        async with self._joining:
            self.forget_below(watermark)
            end = self.end
            if not self._messages:
                self.ready_to = end
                return
            taken = list(self._messages)
            fetched = [await self._events(message) for message in taken]
            messages = [(message, events) for message, events in zip(taken, fetched, strict=True) if message.rows]
            if sum(message.rows for message in taken) <= _INLINE_ROWS:
                block = _joined(messages, spec)
            else:
                block = await asyncio.to_thread(_joined, messages, spec)
            self._settle(taken, block, spec)
            self.ready_to = max(self.ready_to, end)

    async def _events(self, message: _Message) -> pa.Table:
        if message.events is not None:
            return message.events
        deliveries = await self._stream.read(message.sequence, max_messages=1)
        if not deliveries:
            raise Unavailable("the bus did not give a message of the tail", code="bus_unavailable", hint="try again")
        return await asyncio.to_thread(decode, deliveries[0].body)

    def _settle(self, taken: Sequence[_Message], block: _Block | None, spec: TableSpec) -> None:
        """Put the block in the place of its messages, all at once or not at all."""
        blocks = list(self._blocks)
        # What was dropped meanwhile is committed, and must not come back below `complete_from`.
        if block is not None and int(block.positions[-1]) >= self.complete_from:
            while blocks and len(blocks[-1].positions) <= 2 * len(block.positions):
                block = _merged(blocks.pop(), block, spec)
            blocks.append(block)
        self._memory.free_bytes += sum(old.size for old in self._blocks) - sum(new.size for new in blocks)
        self._blocks = blocks
        while self._messages and self._messages[0].sequence <= taken[-1].sequence:
            message = self._messages.popleft()
            self._memory.free_bytes += message.size if message.events is not None else 0

    def rows(self, spec: TableSpec, start: int, end: int) -> pa.Table:
        """The rows with `start` <= _seq < `end`, in the table's columns; of those that are ready."""
        schema = spec.row_schema()
        pieces = []
        for block in self._blocks:
            first, stop = np.searchsorted(block.positions, [start, end])
            if first < stop:
                pieces.append(_fitting(block.rows.slice(first, stop - first), schema))
        return pa.concat_tables(pieces) if pieces else schema.empty_table()


def _joined(messages: Sequence[tuple[_Message, pa.Table]], spec: TableSpec) -> _Block | None:
    if not messages:
        return None
    schema = spec.wire_schema()
    pieces: list[pa.Table] = []
    positions: list[Ints] = []
    for message, events in messages:
        at = np.arange(events.num_rows, dtype=np.int64)
        if message.counts is not None and message.rows < events.num_rows:
            events, at = events.filter(pa.array(message.counts)), at[message.counts]
        pieces.append(_fitting(events, schema))
        positions.append(first_position(message.sequence) + at)
    return _block(pa.concat_tables(pieces), np.concatenate(positions), spec)


def _block(events: pa.Table, positions: Ints, spec: TableSpec) -> _Block:
    rows = events.add_column(0, spec.row_schema().field("_seq"), pa.array(positions)).combine_chunks()
    return _Block(rows, positions, rows.nbytes)


def _merged(older: _Block, newer: _Block, spec: TableSpec) -> _Block:
    schema = spec.row_schema()
    rows = pa.concat_tables([_fitting(older.rows, schema), _fitting(newer.rows, schema)]).combine_chunks()
    return _Block(rows, np.concatenate([older.positions, newer.positions]), rows.nbytes)


def _fitting(events: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return conform(events, schema)
    except (ValueError, pa.ArrowInvalid) as error:
        raise SchemaMoved("the table has just got new columns", hint="try again") from error
