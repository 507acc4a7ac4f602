"""Memory bus, for simulations: the promises of the real buses, and knobs that break them on purpose.

The object stands for the server: what was published stays while clients crash around it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from frazil.bus import Delivery, HeadMoved, Message, StreamMissing
from frazil.bus.stream_rules import (
    DUPLICATE_WINDOW_SECONDS,
    check_name,
    check_publish,
    full,
    gap,
    lost_end,
    replaced,
    unknown,
)
from frazil.errors import Conflict


@dataclass
class _Log:
    """One stream as the server keeps it."""

    name: str
    identity: str
    first: int
    head: int
    stored: dict[int, Delivery] = field(default_factory=dict)
    bytes: int = 0
    published: dict[str, tuple[int, float]] = field(default_factory=dict)
    appended: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryBus:
    """`EventBus` in memory.

    `clock` drives the duplicate window, so that a simulation may let time pass. The knobs `fail_publishes` and
    `lose_replies` count down with each publish; `drop`, `cut_end` and `replace` damage a stream as an accident would.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 1 << 30,
        duplicate_window_seconds: float = DUPLICATE_WINDOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_bytes = max_bytes
        self.duplicate_window_seconds = duplicate_window_seconds
        self.clock = clock
        self.fail_publishes = 0
        """So many of the next publishes fail before anything is written."""
        self.lose_replies = 0
        """So many of the next publishes take effect and fail afterwards. The caller sees the same error."""
        self.down = False
        """While set, everything is unavailable and nothing is written."""
        self._logs: dict[str, _Log] = {}

    async def create(self, name: str, *, first_sequence: int = 1) -> MemoryStream:
        check_name(name)
        self.check_up()
        if name in self._logs:
            raise Conflict(
                f"the bus has a stream for {name} already", hint="open it, or delete it first if it may be lost"
            )
        log = _Log(name, uuid.uuid4().hex, first_sequence, first_sequence - 1)
        self._logs[name] = log
        return MemoryStream(self, log)

    async def open(self, name: str) -> MemoryStream:
        check_name(name)
        self.check_up()
        return MemoryStream(self, self._log(name))

    async def delete(self, name: str) -> None:
        check_name(name)
        self.check_up()
        if log := self._logs.pop(name, None):
            log.appended.set()

    async def names(self) -> list[str]:
        self.check_up()
        return sorted(self._logs)

    async def check(self) -> dict[str, str]:
        self.check_up()
        return {"server": "memory", "sync": "none: for simulations only"}

    async def close(self) -> None:
        return None

    def drop(self, name: str, sequence: int) -> None:
        """Make a hole: this message is gone, its neighbours stay."""
        log = self._log(name)
        delivery = log.stored.pop(sequence)
        log.bytes -= len(delivery.body)

    def cut_end(self, name: str, head: int) -> None:
        """Forget all messages above `head`, as a server does that did not sync before a power cut."""
        log = self._log(name)
        for sequence in [sequence for sequence in log.stored if sequence > head]:
            self.drop(name, sequence)
        log.head = min(log.head, head)
        log.first = min(log.first, log.head + 1)
        log.published = {key: (last, at) for key, (last, at) in log.published.items() if last <= head}

    async def replace(self, name: str, *, first_sequence: int = 1) -> MemoryStream:
        """Put a new, empty stream in the place of this one."""
        await self.delete(name)
        return await self.create(name, first_sequence=first_sequence)

    def check_up(self) -> None:
        if self.down:
            raise unknown("a request", "it is switched off")

    def current(self, log: _Log) -> None:
        """Refuse a handle to a stream that is gone."""
        self.check_up()
        found = self._log(log.name)
        if found is not log:
            raise replaced(log.name, log.identity, found.identity)

    def _log(self, name: str) -> _Log:
        if name not in self._logs:
            raise StreamMissing(
                f"the bus has no stream for {name}",
                hint=f"check that this is the right bus; `frazil repair bus {name}` makes a new stream",
            )
        return self._logs[name]


class MemoryStream:
    """`Stream` in memory."""

    def __init__(self, bus: MemoryBus, log: _Log) -> None:
        self._bus = bus
        self._log = log

    @property
    def name(self) -> str:
        return self._log.name

    @property
    def identity(self) -> str:
        return self._log.identity

    async def publish(self, messages: Sequence[Message], *, message_id: str, expected_last: int | None = None) -> int:
        check_publish(messages, message_id)
        self._bus.current(self._log)
        if self._bus.fail_publishes > 0:
            self._bus.fail_publishes -= 1
            raise unknown("a publish", "it was lost on the way there")
        last = self._append(messages, message_id, expected_last)
        if self._bus.lose_replies > 0:
            self._bus.lose_replies -= 1
            raise unknown("a publish", "the reply was lost on the way back")
        return last

    def _append(self, messages: Sequence[Message], message_id: str, expected_last: int | None) -> int:
        log, now = self._log, self._bus.clock()
        horizon = now - self._bus.duplicate_window_seconds
        log.published = {key: entry for key, entry in log.published.items() if entry[1] > horizon}
        if message_id in log.published:
            return log.published[message_id][0]
        if expected_last is not None and expected_last != log.head:
            raise HeadMoved(
                f"the stream of {log.name} is at {log.head}, not at {expected_last}",
                hint="look at the head and publish again",
            )
        size = sum(len(message.body) for message in messages)
        if log.bytes + size > self._bus.max_bytes:
            raise full(log.name, f"{log.bytes} of {self._bus.max_bytes} bytes are used")
        for message in messages:
            log.head += 1
            log.stored[log.head] = Delivery(log.head, bytes(message.body), dict(message.headers))
        log.bytes += size
        log.published[message_id] = (log.head, now)
        appended, log.appended = log.appended, asyncio.Event()
        appended.set()
        return log.head

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
        self._bus.current(self._log)
        log = self._log
        if first > log.head + 1:
            raise lost_end(log.name, first, log.head)
        if first < log.first:
            raise gap(log.name, first, log.first)
        found: list[Delivery] = []
        size = 0
        for sequence in range(first, min(first + max(max_messages, 1), log.head + 1)):
            if sequence not in log.stored:
                raise gap(log.name, sequence, min((key for key in log.stored if key > sequence), default=log.head + 1))
            found.append(log.stored[sequence])
            size += len(log.stored[sequence].body)
            if size >= max_bytes:
                break
        return found

    async def head(self) -> int:
        self._bus.current(self._log)
        return self._log.head

    async def first(self) -> int:
        self._bus.current(self._log)
        return self._log.first

    async def wait(self, above: int, *, timeout_seconds: float) -> int:
        try:
            async with asyncio.timeout(timeout_seconds):
                while await self.head() <= above:
                    await self._log.appended.wait()
        except TimeoutError:
            return await self.head()
        return await self.head()

    async def trim(self, below: int) -> None:
        self._bus.current(self._log)
        log = self._log
        for sequence in range(log.first, min(below, log.head + 1)):
            if delivery := log.stored.pop(sequence, None):
                log.bytes -= len(delivery.body)
            log.first = sequence + 1
