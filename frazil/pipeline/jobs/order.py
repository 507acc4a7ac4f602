"""Job order: callers take turns.

The caller who was served longest ago comes next, with their oldest job. So one caller's hundred loads cost another
caller one of them, not a hundred.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from frazil.registry import Job

_MAX_CALLERS = 10_000


class JobOrder:
    """The order of one lane. It is remembered by this process only: after a restart all begin alike."""

    def __init__(self) -> None:
        # Served longest ago first. Callers stay here after their last job: or somebody who asks for the next one just
        # when the last is done would be new each time, and come first each time.
        self._served: OrderedDict[str, None] = OrderedDict()

    def next(self, jobs: Sequence[Job]) -> Job | None:
        """The job whose turn it is, of the open ones in the order in which they came; None if there is none.

        Jobs without a caller, as older versions wrote them, count as those of one caller.
        """
        oldest: dict[str, Job] = {}
        for job in jobs:
            oldest.setdefault(job.asked_by, job)
        if not oldest:
            return None
        new = next((caller for caller in oldest if caller not in self._served), None)
        caller = new if new is not None else next(known for known in self._served if known in oldest)
        self._served[caller] = None
        self._served.move_to_end(caller)
        if len(self._served) > _MAX_CALLERS:
            self._served.popitem(last=False)
        return oldest[caller]
