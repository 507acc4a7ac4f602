"""Word of a new artifact, over the bus: whoever serves the table looks at its register at once.

What is said is only that something changed; the register is the truth. So a lost word costs time and nothing else, and
every server follows from the end of the stream by itself, at its own pace.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence

import msgspec

from frazil.bus import EventBus, Message, Stream, StreamMissing
from frazil.errors import Conflict

STREAM = "system.announcements"
_KEPT = 1_000


async def announce(bus: EventBus, table: str, generation: str) -> None:
    """Say that the table's register has changed for this generation."""
    stream = await _stream(bus)
    said = msgspec.json.encode({"table": table, "generation": generation})
    last = await stream.publish([Message(said)], message_id=uuid.uuid4().hex)
    if last > _KEPT and last % 100 == 0:
        await stream.trim(last - _KEPT)


class AnnouncementReader:
    """One server's own subscription: it hears what is said after it was opened."""

    def __init__(self, stream: Stream, heard: int) -> None:
        self._stream = stream
        self._heard = heard

    @classmethod
    async def open(cls, bus: EventBus) -> AnnouncementReader:
        stream = await _stream(bus)
        return cls(stream, await stream.head())

    async def next(self, *, timeout_seconds: float) -> Sequence[str]:
        """The tables that something was said of since the last call; none after the time-out.

        Raises `Unavailable`, `StreamMissing` or `BusReplaced` as the bus does, and `BusGap` if it slept for too long:
        then open another, and look at every table.
        """
        if await self._stream.wait(self._heard, timeout_seconds=timeout_seconds) <= self._heard:
            return ()
        said = await self._stream.read(self._heard + 1)
        if said:
            self._heard = said[-1].sequence
        return sorted({msgspec.json.decode(word.body)["table"] for word in said})


async def _stream(bus: EventBus) -> Stream:
    try:
        return await bus.open(STREAM)
    except StreamMissing:
        with contextlib.suppress(Conflict):  # another was first
            return await bus.create(STREAM)
        return await bus.open(STREAM)
