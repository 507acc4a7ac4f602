"""Fair queue: which query may run now, by owner in rounds and in two lanes.

A query starts in the fast lane. When it has run for a while it moves to the slow lane, so that its place is free for
others. An owner with enough slow queries starts no further one until one of them is done.

A query is one `Slot` from the moment it asks until it leaves, and the context manager that made the slot removes it.
Every number is counted from the slots that are there, so that none can drift, and after every change `_settle` gives
away what is free. A cancelled query is passed over while it has not left yet; one that is cancelled after it was
granted gives its place on in the step in which it leaves.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from frazil.serving.sql.errors import Busy, QueryTimeout
from frazil.serving.sql.settings import QuerySettings

_Lane = Literal["waiting", "fast", "overdue", "slow"]


@dataclass(eq=False)
class Slot:
    """One query, waiting or running. `overdue` is in the fast lane and moves to the slow one when that has room."""

    owner: str
    deadline: float
    granted: asyncio.Future[None]
    lane: _Lane = "waiting"

    @property
    def is_slow(self) -> bool:
        return self.lane == "slow"


class FairQueue:
    """`on_slow` is called for each query that has moved to the slow lane."""

    def __init__(self, settings: QuerySettings, on_slow: Callable[[Slot], None] = lambda slot: None) -> None:
        self._settings = settings
        self._on_slow = on_slow
        # The owners in the order of their turns; none of the queues is empty. Dictionaries as sets that keep an order.
        self._waiting: OrderedDict[str, dict[Slot, None]] = OrderedDict()
        self._held: dict[Slot, None] = {}

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    @property
    def fast(self) -> int:
        return sum(not slot.is_slow for slot in self._held)

    @property
    def slow(self) -> int:
        return sum(slot.is_slow for slot in self._held)

    def others_wait(self, owner: str) -> bool:
        """Whether a query of another owner could start if there were a place."""
        slow = Counter(slot.owner for slot in self._held if slot.is_slow)
        return any(other != owner and slow[other] < self._settings.slow_per_owner for other in self._waiting)

    @asynccontextmanager
    async def slot(self, owner: str, deadline: float) -> AsyncIterator[Slot]:
        """A place in the fast lane, when it is this owner's turn. `Busy` at once when too many wait.

        `QueryTimeout` when the deadline, in the time of the event loop, comes first.
        """
        slot = self._enter(owner, deadline)
        try:
            await _granted(slot)
            yield slot
        finally:
            self._leave(slot)

    def move_to_slow_lane(self, slot: Slot) -> None:
        """Move a running query to the slow lane, at once or as soon as there is room."""
        if slot.lane != "fast" or slot not in self._held:
            return
        slot.lane = "overdue"
        # At the end: those that have waited longer for the slow lane go first.
        del self._held[slot]
        self._held[slot] = None
        self._settle()

    def faults(self) -> list[str]:
        """The rules that do not hold now; none, unless there is an error in this file."""
        return list(self._faults())

    def _enter(self, owner: str, deadline: float) -> Slot:
        waiting = len(self._waiting.get(owner, ()))
        if waiting >= self._settings.max_queued_per_owner or self.waiting >= self._settings.max_queued:
            raise Busy("too many queries are waiting", hint="try again in a moment", retry_after_seconds=1.0)
        slot = Slot(owner, deadline, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, {})[slot] = None
        self._settle()
        return slot

    def _leave(self, slot: Slot) -> None:
        self._held.pop(slot, None)
        if slot in (queue := self._waiting.get(slot.owner, {})):
            del queue[slot]
            if not queue:
                del self._waiting[slot.owner]
        self._settle()

    def _settle(self) -> None:
        """Fill both lanes, the slow one first: who moves there leaves a place in the fast one."""
        moved = []
        while (slot := self._next_overdue()) is not None:
            slot.lane = "slow"
            moved.append(slot)
        while (slot := self._next_waiting()) is not None:
            self._grant(slot)
        for slot in moved:
            self._on_slow(slot)

    def _next_overdue(self) -> Slot | None:
        if self.slow >= self._settings.slow_workers:
            return None
        return next((slot for slot in self._held if slot.lane == "overdue"), None)

    def _next_waiting(self) -> Slot | None:
        if not self._waiting or self.fast >= self._settings.workers:
            return None
        fast = Counter(slot.owner for slot in self._held if not slot.is_slow)
        slow = Counter(slot.owner for slot in self._held if slot.is_slow)
        for owner, queue in self._waiting.items():
            if self._may_start(fast[owner], slow[owner]):
                # One that is done was cancelled, and leaves in the next step of its task.
                slot = next((slot for slot in queue if not slot.granted.done()), None)
                if slot is not None:
                    return slot
        return None

    def _may_start(self, fast: int, slow: int) -> bool:
        """Who has a slow query leaves the last place in the fast lane to others; who has enough of them starts none."""
        most = max(1, self._settings.workers - 1) if slow else self._settings.workers
        return slow < self._settings.slow_per_owner and fast < most

    def _grant(self, slot: Slot) -> None:
        """From the queue into the fast lane; the owner goes behind the others."""
        queue = self._waiting[slot.owner]
        del queue[slot]
        if queue:
            self._waiting.move_to_end(slot.owner)
        else:
            del self._waiting[slot.owner]
        slot.lane = "fast"
        self._held[slot] = None
        slot.granted.set_result(None)

    def _faults(self) -> Iterator[str]:
        if self.fast > self._settings.workers:
            yield f"{self.fast} queries are in the fast lane, which has {self._settings.workers} places"
        if self.slow > self._settings.slow_workers:
            yield f"{self.slow} queries are in the slow lane, which has {self._settings.slow_workers} places"
        if (slot := self._next_overdue()) is not None:
            yield f"a query of {slot.owner} does not move although the slow lane has room"
        if (slot := self._next_waiting()) is not None:
            yield f"a query of {slot.owner} waits although it could run"
        for slot in self._held:
            if slot.lane == "waiting" or not slot.granted.done() or slot.granted.cancelled():
                yield f"a query of {slot.owner} has a place that was not granted"
        for owner, queue in self._waiting.items():
            if not queue:
                yield f"the empty queue of {owner} takes part in the round"
            if any(slot.owner != owner or slot.lane != "waiting" or slot in self._held for slot in queue):
                yield f"the queue of {owner} has a query that does not wait for {owner}"


async def _granted(slot: Slot) -> None:
    try:
        async with asyncio.timeout_at(slot.deadline):
            await slot.granted
    except TimeoutError as error:
        raise QueryTimeout(
            "the query did not get its turn in time", hint="allow more time, or send fewer queries"
        ) from error
