"""Announcements of new artifacts over the bus: whoever serves the table reads its register at once.

An announcement only means that something changed; the register is the truth. So a lost announcement costs time and
nothing else, and every server reads from the end of the stream by itself, at its own pace.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence

import msgspec

from frazil.bus import EventBus, Message, Stream, StreamMissing
from frazil.errors import Conflict

STREAM = "system.announcements"
_KEPT_MESSAGES = 1_000


async def announce(bus: EventBus, table: str, generation: str) -> None:
    """Announce that the table's register has changed for this generation."""
    stream = await _stream(bus)
    body = msgspec.json.encode({"table": table, "generation": generation})
    last = await stream.publish([Message(body)], message_id=uuid.uuid4().hex)
    if last > _KEPT_MESSAGES and last % 100 == 0:
        await stream.trim(last - _KEPT_MESSAGES)


class AnnouncementReader:
    """The subscription of one server: it reads what is announced after it was opened."""

    def __init__(self, stream: Stream, read_up_to: int) -> None:
        self._stream = stream
        self._read_up_to = read_up_to

    @classmethod
    async def open(cls, bus: EventBus) -> AnnouncementReader:
        stream = await _stream(bus)
        return cls(stream, await stream.head())

    async def next(self, *, timeout_seconds: float) -> Sequence[str]:
        """The tables that were announced since the last call; none after the time-out.

        Raises `Unavailable`, `StreamMissing` or `BusReplaced` as the bus does, and `BusGap` if it slept for too long:
        then open another, and look at every table.
        """
        if await self._stream.wait(self._read_up_to, timeout_seconds=timeout_seconds) <= self._read_up_to:
            return ()
        messages = await self._stream.read(self._read_up_to + 1)
        if messages:
            self._read_up_to = messages[-1].sequence
        return sorted({msgspec.json.decode(message.body)["table"] for message in messages})


async def _stream(bus: EventBus) -> Stream:
    try:
        return await bus.open(STREAM)
    except StreamMissing:
        with contextlib.suppress(Conflict):  # another was first
            return await bus.create(STREAM)
        return await bus.open(STREAM)
