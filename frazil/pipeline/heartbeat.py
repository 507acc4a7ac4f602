"""Heartbeat of the engine: a thread that calls the JVM once a second, and the time since its last answer.

A thread of its own, because a call to a stopped JVM hangs until the JVM goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
BEAT_SECONDS = 1.0


class EngineHeartbeat:
    def __init__(self, is_alive: Callable[[], bool], *, every_seconds: float = BEAT_SECONDS) -> None:
        """`is_alive` may hang. False from it says that the engine is gone for good."""
        self._is_alive = is_alive
        self._every_seconds = every_seconds
        self._answered_at = time.monotonic()
        self._ended = threading.Event()
        self.is_gone = False

    @property
    def silent_seconds(self) -> float:
        """How long ago the last answer came."""
        return time.monotonic() - self._answered_at

    def start(self) -> None:
        threading.Thread(target=self._beat, name="engine heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Send no more requests. One that hangs is left alone."""
        self._ended.set()

    def _beat(self) -> None:
        while not self._ended.is_set():
            try:
                if not self._is_alive():
                    self.is_gone = True
                    return
                self._answered_at = time.monotonic()
            except Exception as error:  # an answer that cannot be understood counts as none
                log.warning("engine heartbeat failed: %s: %s", type(error).__name__, error)
            self._ended.wait(self._every_seconds)
