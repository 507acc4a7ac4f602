"""Rate limit: a token bucket per caller. It fills at a steady rate, and every request takes one."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from frazil.errors import Unavailable

MAX_BUCKETS = 10_000


class RateLimited(Unavailable):
    code = "rate_limited"
    status = 429


class RateLimiter:
    """The buckets of one gateway: with several gateways, a caller has as many times the rate.

    Buckets of those who called longest ago are forgotten above `max_buckets`. They have filled up again meanwhile,
    unless so many callers are busy at once.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, max_buckets: int = MAX_BUCKETS) -> None:
        self._clock = clock
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Take one; 0.0 if there was one, else the seconds until there is."""
        now = self._clock()
        filled, at = self._buckets.pop(key, (float(burst), now))
        filled = min(float(burst), filled + (now - at) * per_second)
        wait = 0.0 if filled >= 1 else (1 - filled) / per_second
        self._buckets[key] = (filled - 1 if wait == 0.0 else filled, now)
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)
        return wait
