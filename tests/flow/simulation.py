"""Committers, a bus and a table in one thread, advanced one step at a time in whatever order a test wants.

A cycle of the real `Committer` is a coroutine. Here nothing runs it but the test: it stops before each request to the
bus and to the table and at each crash point of the commit, and goes on when told. So two committers can be interleaved
at every point, one can sleep while the world moves on, and one can be dropped for good, as a kill does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from frazil.bus import Delivery, Message
from frazil.bus.memory import MemoryStream
from frazil.bus.stream_rules import unknown
from frazil.errors import FrazilError
from frazil.events import sequence_of
from frazil.lake.commit import Outcome
from frazil.lake.derived import DeadLetter
from frazil.pipeline.commit import BatchLimits, Committer
from frazil.pipeline.commit.committer import Committed, ReadAhead
from frazil.pipeline.commit.target import Commit, TableState
from tests.flow.memory_target import MemoryTarget

_T = TypeVar("_T")


class Stop:
    """Awaiting it hands control back to the test."""

    def __init__(self, at: str) -> None:
        self._at = at

    def __await__(self) -> Generator[str, None, None]:
        yield self._at


class SteppedStream:
    """A `Stream` that stops before each request, and fails where it was told to."""

    def __init__(self, stream: MemoryStream, faults: list[str]) -> None:
        self._stream = stream
        self._faults = faults

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def identity(self) -> str:
        return self._stream.identity

    async def publish(self, messages: Sequence[Message], *, message_id: str, expected_last: int | None = None) -> int:
        return await self._stream.publish(messages, message_id=message_id, expected_last=expected_last)

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
        await self._request("read")
        return await self._stream.read(first, max_messages=max_messages, max_bytes=max_bytes)

    async def head(self) -> int:
        await self._request("head")
        return await self._stream.head()

    async def first(self) -> int:
        await self._request("first")
        return await self._stream.first()

    async def wait(self, above: int, *, timeout_seconds: float) -> int:
        """Times out at once: a test has no patience, and a head that is not above is a legal answer."""
        await self._request("wait")
        return await self._stream.head()

    async def trim(self, below: int) -> None:
        await self._request("trim")
        await self._stream.trim(below)
        self._fail("trim_reply")

    async def _request(self, what: str) -> None:
        await Stop(f"bus_{what}")
        self._fail(what)

    def _fail(self, what: str) -> None:
        if what in self._faults:
            self._faults.remove(what)
            raise unknown(what, "the simulation wants it so")


class SteppedCommitter(Committer):
    """A `Committer` whose blocking calls run in place, and whose commit stops at each crash point.

    What it reads ahead it reads before the commit instead of beside it: what is used later is as old as it can be.
    """

    _read: ReadAhead | None = None

    async def _commit(self, base: TableState, commit: Commit, *, messages: int) -> tuple[Outcome, TableState]:
        self._read = None
        if self.behind:
            # As in the product, a failure to read ahead is no failure of this cycle.
            with contextlib.suppress(FrazilError):
                self._read = await self._read_ahead(sequence_of(commit.watermark), base.spec.row_schema())
        try:
            return await super()._commit(base, commit, messages=messages)
        except FrazilError:
            self._read = None
            raise

    async def _read_ahead_from(self, lo: int) -> ReadAhead | None:
        ahead, self._read = self._read, None
        if ahead is not None and ahead.lo == lo:
            self.used_ahead()
            return ahead
        return None

    def used_ahead(self) -> None:
        """Called when a batch that was read ahead is taken."""

    def limit(self, limits: BatchLimits) -> None:
        self._limits = limits

    async def _blocking(self, call: Callable[[], _T]) -> _T:
        await Stop("blocking_call")
        result = call()
        if not isinstance(result, Generator):
            return result
        while True:
            try:
                at = next(result)
            except StopIteration as finished:
                outcome: _T = finished.value
                return outcome
            await Stop(at)


class SteppedTarget(MemoryTarget):
    """Hands the commit out as steps, for `SteppedCommitter` to go through."""

    def commit(self, base: TableState, commit: Commit) -> Any:
        return self.commit_steps(base, commit)

    def add_dead_letters(self, base: TableState, letters: Sequence[DeadLetter]) -> Any:
        return self.dead_letter_steps(base, letters)


class Actor:
    """One committer process: it runs a cycle step by step, and can be killed at any of them."""

    def __init__(self, start: Callable[[], SteppedCommitter], accepted: Callable[[FrazilError], bool]) -> None:
        self._start = start
        self._accepted = accepted
        self._cycle: Coroutine[str, None, Committed | None] | None = None
        self.committer = start()
        self.last: Committed | Exception | None = None
        """How the last cycle ended."""

    @property
    def busy(self) -> bool:
        return self._cycle is not None

    def step(self, limits: BatchLimits) -> str | None:
        """Go on to the next stop and return its name, or None at the end of a cycle. Begins a cycle when idle."""
        if self._cycle is None:
            self.committer.limit(limits)
            self._cycle = self.committer.cycle(idle_seconds=0.0)
        try:
            return self._cycle.send(None)
        except StopIteration as finished:
            self.last = finished.value
        except FrazilError as error:
            self.last = error
            if not self._accepted(error):
                self._cycle = None
                raise
        self._cycle = None
        return None

    def finish(self, limits: BatchLimits) -> None:
        """Go on to the end of the cycle."""
        for _ in range(10_000):
            if self.step(limits) is None:
                return
        raise AssertionError("the cycle does not end")

    def kill(self) -> None:
        """Forget everything the process knew, and start another one."""
        if self._cycle is not None:
            self._cycle.close()
            self._cycle = None
        self.committer = self._start()


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run what never waits to its end, without an event loop."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as finished:
        result: _T = finished.value
        return result
