"""Original events, which duplicates are compared with: from memory, from the bus or from the table."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from frazil.bus import Stream
from frazil.errors import BusGap
from frazil.events import INDEX_BITS, MAX_EVENTS_PER_MESSAGE, Ints, decode
from frazil.lake.catalog import LakeTable

MAX_CACHED_BYTES = 48 << 20


class Originals:
    """Events by position. Keeps the messages used last, up to a number of bytes."""

    def __init__(self, stream: Stream, load_table: Callable[[], LakeTable]) -> None:
        self._stream = stream
        self._load_table = load_table
        self._messages: OrderedDict[int, pa.Table] = OrderedDict()
        self._bytes = 0

    def remember(self, sequence: int, events: pa.Table) -> None:
        if sequence in self._messages:
            self._messages.move_to_end(sequence)
            return
        self._messages[sequence] = events
        self._bytes += events.nbytes
        while self._bytes > MAX_CACHED_BYTES and len(self._messages) > 1:
            self._bytes -= self._messages.popitem(last=False)[1].nbytes

    async def at(self, positions: Ints) -> tuple[pa.Table, Ints]:
        """The events at these positions, and the indices into `positions` that they answer.

        They have the columns that they were written with, all of them together. A row that is nowhere any more
        (deleted from the table by its owner) is left out.
        """
        sequences = positions >> INDEX_BITS
        found: list[pa.Table] = []
        answered: list[Ints] = []
        committed: list[Ints] = []
        for sequence in np.unique(sequences):
            wanted = np.flatnonzero(sequences == sequence)
            events = await self._message(int(sequence))
            if events is None:
                committed.append(wanted)
                continue
            rows = positions[wanted] & (MAX_EVENTS_PER_MESSAGE - 1)
            found.append(events.take(pa.array(rows)))
            answered.append(wanted)
        if committed:
            wanted = np.concatenate(committed)
            rows_found, indices = await asyncio.to_thread(self._from_table, positions, wanted)
            found.append(rows_found)
            answered.append(indices)
        return pa.concat_tables(found, promote_options="permissive"), np.concatenate(answered)

    async def _message(self, sequence: int) -> pa.Table | None:
        events = self._messages.get(sequence)
        if events is None:
            try:
                deliveries = await self._stream.read(sequence, max_messages=1)
            except BusGap:
                return None
            if not deliveries:
                return None
            events = decode(deliveries[0].body)
        self.remember(sequence, events)
        return events

    def _from_table(self, positions: Ints, wanted: Ints) -> tuple[pa.Table, Ints]:
        rows = self._load_table().rows_at(positions[wanted].tolist())
        at = {int(position): row for row, position in enumerate(rows.column("_seq").to_pylist())}
        indices = np.array([i for i in wanted if int(positions[i]) in at], dtype=np.int64)
        taken = rows.take(pa.array([at[int(positions[i])] for i in indices], pa.int64()))
        return taken, indices
