"""Whose query is next: a queue for each owner, served in turn, and two lanes.

A query starts in the fast lane. When it has run for a while it moves to the slow lane, so that its place is free for
others. An owner with enough slow queries starts no further one until one of them is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass

from frazil.serving.sql.errors import Busy, QueryTimeout
from frazil.serving.sql.settings import QuerySettings


@dataclass(eq=False)
class Turn:
    owner: str
    slow: bool = False


class Turns:
    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings
        self._queues: OrderedDict[str, deque[asyncio.Future[Turn]]] = OrderedDict()
        self._quick: Counter[str] = Counter()
        self._slow: Counter[str] = Counter()
        self._overdue: deque[Turn] = deque()

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    @property
    def quick(self) -> int:
        return self._quick.total()

    @property
    def slow(self) -> int:
        return self._slow.total()

    def others_wait(self, owner: str) -> bool:
        """Whether a query of another owner could start if there were a place."""
        allowed = self._settings.slow_per_owner
        return any(other != owner and self._slow[other] < allowed for other in self._queues)

    async def wait(self, owner: str, deadline: float) -> Turn:
        """A place in the fast lane, when it is this owner's turn. `Busy` at once when too many wait."""
        waiting = len(self._queues.get(owner, ()))
        if waiting >= self._settings.max_queued_per_owner or self.waiting >= self._settings.max_queued:
            raise Busy("too many queries are waiting", hint="try again in a moment", retry_after_seconds=1.0)
        place: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(place)
        self._grant()
        try:
            async with asyncio.timeout_at(deadline):
                return await place
        except TimeoutError as error:
            self._withdraw(owner, place)
            raise QueryTimeout(
                "the query did not get its turn in time", hint="allow more time, or ask less often"
            ) from error
        except asyncio.CancelledError:
            self._withdraw(owner, place)
            raise

    def move_aside(self, turn: Turn) -> bool:
        """Move a running query to the slow lane. False when that is full: it moves as soon as a place is free."""
        if self.slow >= self._settings.slow_workers:
            self._overdue.append(turn)
            return False
        self._become_slow(turn)
        self._grant()
        return True

    def leave(self, turn: Turn) -> Turn | None:
        """The query is done. Returns the one that moves to the slow lane in its stead, if one was waiting for that."""
        if turn.slow:
            self._slow[turn.owner] -= 1
            if not self._slow[turn.owner]:
                del self._slow[turn.owner]
        else:
            self._give_up_place(turn)
            if turn in self._overdue:
                self._overdue.remove(turn)
        moved = self._overdue.popleft() if turn.slow and self._overdue else None
        if moved is not None:
            self._become_slow(moved)
        self._grant()
        return moved

    def _become_slow(self, turn: Turn) -> None:
        turn.slow = True
        self._give_up_place(turn)
        self._slow[turn.owner] += 1

    def _give_up_place(self, turn: Turn) -> None:
        self._quick[turn.owner] -= 1
        if not self._quick[turn.owner]:
            del self._quick[turn.owner]

    def _grant(self) -> None:
        while self.quick < self._settings.workers and (owner := self._next()) is not None:
            place = self._queues[owner].popleft()
            self._tidy(owner)
            place.set_result(Turn(owner))
            self._quick[owner] += 1

    def _next(self) -> str | None:
        return next((owner for owner in self._queues if self._may_start(owner)), None)

    def _may_start(self, owner: str) -> bool:
        """Who has a slow query leaves the last place in the fast lane to others; who has enough of them starts none."""
        slow = self._slow[owner]
        most = max(1, self._settings.workers - 1) if slow else self._settings.workers
        return slow < self._settings.slow_per_owner and self._quick[owner] < most

    def _tidy(self, owner: str) -> None:
        """Behind the other owners, or out of the round when nothing of this one waits."""
        if self._queues[owner]:
            self._queues.move_to_end(owner)
        else:
            del self._queues[owner]

    def _withdraw(self, owner: str, place: asyncio.Future[Turn]) -> None:
        if place.done() and not place.cancelled():
            # It was granted in the same moment in which the caller gave up.
            self.leave(place.result())
        elif place in self._queues.get(owner, ()):
            self._queues[owner].remove(place)
            if not self._queues[owner]:
                del self._queues[owner]
