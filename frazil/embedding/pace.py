"""Request pace: a limit of requests per second, shared by all threads."""

from __future__ import annotations

import threading
import time


class RequestPace:
    """Requests start at a fixed distance from each other."""

    def __init__(self, per_second: float | None) -> None:
        self._distance = 1.0 / per_second if per_second else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when this caller may send its request."""
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            self._next = mine + self._distance
        time.sleep(mine - now)

    def rest(self, seconds: float) -> None:
        """No request starts within so many seconds, because the provider demands a pause."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)
