"""Stall clock: for how long queries have waited while none of them began and none that ran came to its end.

Health uses it. It knows nothing of queues and workers, only of what callers see, so that it also finds what their
own accounts do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A shorter wait is a usual one: a worker that starts on a busy machine takes seconds.
USUAL_SECONDS = 10.0
# A failed wait says nothing about now after so long.
FORGOTTEN_SECONDS = 60.0


class StallClock:
    def __init__(self) -> None:
        self._waiting: set[object] = set()
        self._since: float | None = None
        self._failed_at: float | None = None
        """When a query last failed that had not begun."""

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """A query waits, from here until it calls what it is given: it has begun."""
        query = object()
        self._waiting.add(query)
        if self._since is None:
            self._since = _now()
        failed = False
        try:
            yield lambda: self._begun(query)
        except Exception:
            failed = query in self._waiting
            raise
        finally:
            self._waiting.discard(query)
            # A caller that leaves early proves nothing. One whose time ran out does, and one that has waited for long.
            if failed:
                self._failed_at = _now()
            elif not self._waiting and self._waited() < USUAL_SECONDS:
                self._since = None

    def moved(self) -> None:
        """A query began or ended, or a worker is ready for the next."""
        self._since = _now() if self._waiting else None

    def seconds(self, running_until: float) -> float:
        """How much longer than usual queries wait while nothing moves; 0 while those that run have time left.

        `running_until` is the latest deadline of those, in the time of the event loop.
        """
        if self._since is None:
            return 0.0
        if not self._waiting and self._failed_at is not None and _now() - self._failed_at > FORGOTTEN_SECONDS:
            return 0.0  # nobody waits, and nobody has for a while
        return max(0.0, _now() - max(self._since + USUAL_SECONDS, running_until))

    def _begun(self, query: object) -> None:
        self._waiting.discard(query)
        self.moved()

    def _waited(self) -> float:
        return 0.0 if self._since is None else _now() - self._since


def _now() -> float:
    return asyncio.get_running_loop().time()
