"""Not more often than so many times a second, whichever thread asks."""

from __future__ import annotations

import threading
import time


class RequestPace:
    """Hands out moments at a fixed distance; waiting for one's own is all there is to it."""

    def __init__(self, per_second: float | None) -> None:
        self._distance = 1.0 / per_second if per_second else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when it is this caller's turn."""
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            self._next = mine + self._distance
        time.sleep(mine - now)

    def rest(self, seconds: float) -> None:
        """Nobody's turn comes within so many seconds: the provider asked for a pause."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)
