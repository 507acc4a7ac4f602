"""Lanes: a thread for each group of job kinds. Work of one lane is done one after the other.

A lane that gives way to commits begins nothing while a table is behind, and cancels what runs when one falls behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from frazil.pipeline.jobs.order import JobOrder

_T = TypeVar("_T")
_WATCH_SECONDS = 0.2
_PAUSES = (1.0, 2.0)
_PAUSES_GIVING_WAY = (1.0, 1.0, 1.0, 1.0)
"""What gives way is cancelled more often, and each time costs it a try."""


class Lane:
    """Lives as long as the pipeline. Whoever else works in its thread, as planned maintenance does, takes turns with
    its jobs."""

    def __init__(
        self, kinds: Collection[str], *, gives_way: bool = False, pauses_seconds: Sequence[float] | None = None
    ) -> None:
        """`pauses_seconds` are the pauses between the tries of a job that fails by what may pass."""
        self.kinds = tuple(kinds)
        self.gives_way = gives_way
        self.pauses_seconds = pauses_seconds or (_PAUSES_GIVING_WAY if gives_way else _PAUSES)
        self.order = JobOrder()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"job-{'-'.join(self.kinds)}")

    async def run(self, work: Callable[[], _T], *, cancel: Callable[[], None], is_behind: Callable[[], bool]) -> _T:
        """The result of `work`, done in the lane's thread. `cancel` lets it fail soon, and is called by another thread.

        Whoever is cancelled here leaves work behind that ends soon; what comes next in this lane waits for its end.
        """
        async with self._turn:
            while self.gives_way and is_behind():
                await asyncio.sleep(_WATCH_SECONDS)
            running = asyncio.get_running_loop().run_in_executor(self._thread, work)
            try:
                while not (await asyncio.wait({running}, timeout=_WATCH_SECONDS if self.gives_way else None))[0]:
                    if is_behind():
                        await asyncio.to_thread(cancel)
            except asyncio.CancelledError:
                running.cancel()
                with contextlib.suppress(Exception):  # the caller gets the cancellation, not an error of the engine
                    cancel()
                raise
        return running.result()
