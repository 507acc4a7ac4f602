"""Partition budget: how many partitions of each table a gateway takes events for in a day.

A partition costs a file in every commit that has an event for it, and metadata for as long as the table is there. A
producer that sends a partition an event would fill the warehouse with files of one row, slowly enough for every other
limit. Counted are the different partitions since midnight (UTC), by this gateway alone: a restart begins anew, and
several gateways have as many times the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from frazil.access import RateLimited
from frazil.events.declaration import PartitionKey

_DAY_SECONDS = 86_400


class PartitionBudget:
    """Holds at most `per_day` hashes a table, until midnight."""

    def __init__(self, per_day: int, *, clock: Callable[[], float] = time.time) -> None:
        self._per_day = per_day
        self._clock = clock
        self._day = 0
        self._seen: dict[str, set[int]] = {}

    def take(self, table: str, partitions: Sequence[PartitionKey]) -> None:
        """Count the partitions that are new today, or raise `RateLimited` and count none of them."""
        if not partitions:
            return
        now = self._clock()
        if (day := int(now // _DAY_SECONDS)) != self._day:
            self._day, self._seen = day, {}
        seen = self._seen.setdefault(table, set())
        new = {hash(partition) for partition in partitions} - seen
        if len(seen) + len(new) > self._per_day:
            raise RateLimited(
                f"the events fall into {len(new):,} partitions that have none today, after {len(seen):,} others: "
                f"a table takes {self._per_day:,} a day",
                code="too_many_partitions_today",
                hint="nothing of this request was kept: declare the table with coarser partitions, such as month(at) "
                "instead of day(at); for a single large load raise ingest.max_partitions_per_day, or load it in bulk",
                retry_after_seconds=_DAY_SECONDS - now % _DAY_SECONDS,
            )
        seen |= new
