"""Heartbeat of the engine: a thread that asks the JVM once a second, and how long ago it last answered.

A thread of its own, because a JVM that is stopped lets whoever asks hang for as long as it is.
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
        """Ask no more. A question that hangs is left to itself."""
        self._ended.set()

    def _beat(self) -> None:
        while not self._ended.is_set():
            try:
                if not self._is_alive():
                    self.is_gone = True
                    return
                self._answered_at = time.monotonic()
            except Exception as error:  # an answer that cannot be understood is none; the silence tells
                log.warning("the engine's heartbeat: %s: %s", type(error).__name__, error)
            self._ended.wait(self._every_seconds)
