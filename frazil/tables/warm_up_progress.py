"""Progress of a warm-up: how much of it is done, and from that how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable


class WarmUpProgress:
    """It begins with the number of things to read, as far as that is known: ids of the table, then of the bus."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_at = clock()
        self._total = 0
        self._done = 0

    def begin(self, total: int) -> None:
        self._begun_at, self._total, self._done = self._clock(), total, 0

    def advance(self, count: int) -> None:
        self._done += count

    @property
    def done(self) -> float | None:
        """The part that is done; None before anything is."""
        return min(1.0, self._done / self._total) if self._done and self._total else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes if it goes on as it did; None before anything is done."""
        if self.done is None:
            return None
        return (self._clock() - self._begun_at) * (1 - self.done) / self.done
