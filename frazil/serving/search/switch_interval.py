"""Switch interval: threads pass the interpreter on ten times as often while a generation is opened beside another.

Python lets a thread that computes keep the interpreter for 5 ms before another one gets it, and a query asks for it
some ten times. With turns of half a millisecond the slowest query during swaps took 0.7 to 2.7 times the usual p99,
with those of Python 2.4 to 6.0 [100,000 × 768, four clients, in turn on the same machine].
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SHORT_SECONDS = 0.0005


class _SwitchInterval:
    """The number of those who want it short: several tables may swap at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._usual = 0.0

    def shorten(self) -> None:
        with self._lock:
            if not self._wanted:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SHORT_SECONDS))
            self._wanted += 1

    def restore(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                sys.setswitchinterval(self._usual)


_INTERVAL = _SwitchInterval()


@contextmanager
def short_switch_interval() -> Iterator[None]:
    _INTERVAL.shorten()
    try:
        yield
    finally:
        _INTERVAL.restore()
