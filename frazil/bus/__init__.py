"""Bus: where an event is safe from the moment of its receipt until its commit.

`EventBus` and `Stream` are the whole contract; `open_bus(url)` is the one opener. Every implementation passes
`tests/contract/test_bus.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from frazil.bus.settings import BusSettings
from frazil.errors import FrazilError, Misconfigured, NotFound

__all__ = [
    "BusSettings",
    "Delivery",
    "EventBus",
    "HeadMoved",
    "Message",
    "Stream",
    "StreamMissing",
    "open_bus",
]


@dataclass(frozen=True)
class Message:
    """A message as it is published: opaque bytes and a few short headers."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """A message as it is read, with its sequence in the stream."""

    sequence: int
    body: bytes
    headers: Mapping[str, str]


class HeadMoved(FrazilError):
    """The head of the stream is not the expected one; nothing was written."""

    code = "bus_moved"
    transient = True


class StreamMissing(NotFound):
    """The bus has no stream of this name: the bus was lost, or is another one."""

    code = "stream_missing"


class Stream(Protocol):
    """One table's ordered messages. Sequences are whole numbers, contiguous, never used twice.

    A handle stays bound to the stream that was opened: once that one is deleted every verb raises `StreamMissing`, and
    `BusReplaced` when another has its name. A lost connection is made again; until then it is `Unavailable`.
    """

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """Set when the stream is created, and never changed: a new stream of the same name has another."""

    async def publish(self, messages: Sequence[Message], *, message_id: str, expected_last: int | None = None) -> int:
        """Append all messages next to each other, or none, and return the sequence of the last.

        Returning means fsynced. Raising `Unavailable` means unknown: it may have been written, or be written yet.
        The same `message_id` again, within the duplicate window (2 minutes), changes nothing and returns the first
        answer, whatever `expected_last` says. Raises `HeadMoved` if the head is not `expected_last`.
        A full stream raises `Unavailable` (code `bus_full`) and nothing is written. A body of more than 8 MiB, or more
        than 1,000 messages, is `TooLarge`.
        """

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
        """Messages from `first` on, in order and without a hole, at least one if there is one; never waits.

        Reading changes nothing: the same range reads the same again until it is trimmed. Raises `BusGap` when
        `first` lies below the first available message, when a message inside the range is gone, and when `first` lies
        beyond head + 1: then the stream has lost its end, and new messages would get numbers already used.
        """

    async def head(self) -> int:
        """The sequence of the last message ever written (one below the first when there was none)."""

    async def first(self) -> int:
        """The sequence of the first message that can still be read, or head + 1."""

    async def wait(self, above: int, *, timeout_seconds: float) -> int:
        """The head as soon as it is above `above`, or after the time-out whatever it is.

        An absence of the server in between is waited out; only at the time-out is it `Unavailable`.
        """

    async def trim(self, below: int) -> None:
        """Drop the messages below this sequence. Sequences are not reused. Twice is the same as once."""


class EventBus(Protocol):
    async def create(self, name: str, *, first_sequence: int = 1) -> Stream:
        """Make a new, empty stream. The name being taken is a `Conflict`."""

    async def open(self, name: str) -> Stream:
        """An existing stream; raises `StreamMissing`."""

    async def delete(self, name: str) -> None:
        """Remove the stream and all it holds. Deleting what is not there is fine."""

    async def names(self) -> list[str]:
        """The streams of frazil on this bus."""

    async def check(self) -> dict[str, str]:
        """Ask the server which durability settings are in force; raises `Misconfigured` if an ack would not be true."""

    async def close(self) -> None: ...


async def open_bus(url: str, *, credentials: Mapping[str, str] | None = None, max_bytes: int = 8 << 30) -> EventBus:
    """Connect to the bus: `nats://host:port`, `postgresql://…` or `memory:`. `max_bytes` limits each stream."""
    scheme = url.partition(":")[0]
    if scheme == "nats":
        from frazil.bus.nats import NatsBus

        return await NatsBus.connect(url, credentials=credentials or {}, max_bytes=max_bytes)
    if scheme in ("postgresql", "postgres"):
        from frazil.bus.postgres import PostgresBus

        return await PostgresBus.connect(url, credentials=credentials or {}, max_bytes=max_bytes)
    if scheme == "memory":
        from frazil.bus.memory import MemoryBus

        return MemoryBus(max_bytes=max_bytes)
    raise Misconfigured(
        f"no bus has the scheme {scheme!r}", hint="set bus.url to nats://host:port or postgresql://host/database"
    )
