"""Bulk work that somebody asked for: one job at a time in each lane, beside the commits, until it has a result.

A pipeline that dies amid a job leaves it open, and its successor does it again: every job is made so that doing it
again is finishing it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Protocol

from py4j.protocol import Py4JNetworkError

from frazil.errors import FrazilError, Unavailable
from frazil.lake.catalog import Lake
from frazil.pipeline.jobs.order import JobOrder
from frazil.registry import Job, finish_job, job_status, open_jobs, set_progress

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 1.0
_TRIES = 3
_BEGINNINGS = 5
"""A job that was begun so often without a result has taken the process with it each time."""


class Doer(Protocol):
    """Does the jobs of one kind, in the thread that calls it."""

    def do(self, job: Job, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The report of the finished job. `tell` takes what a waiting person wants to see meanwhile."""

    def give_up(self) -> None:
        """Let the running job fail soon; it is done again later."""


class Timer(Protocol):
    """Asks for jobs by itself: because of the clock, or of what it sees."""

    def look(self, now: datetime) -> None:
        """Called every half second or so, in a thread; asks for what is due."""


class JobRunner:
    """Jobs of one lane are done one after the other, in turns by who asked; those of two lanes do not wait for each
    other."""

    def __init__(
        self,
        lake: Lake,
        doers: Mapping[str, Doer],
        note: Callable[..., None],
        timers: Sequence[Timer] = (),
        lanes: Sequence[Collection[str]] = (),
    ) -> None:
        """`lanes` are kinds of jobs; all kinds that are in none of them share one."""
        self._lake = lake
        self._doers = doers
        self._note = note
        self._timers = timers
        rest = doers.keys() - {kind for lane in lanes for kind in lane}
        self._lanes = [tuple(lane) for lane in (*lanes, rest) if lane]
        self._threads = ThreadPoolExecutor(max(1, len(self._lanes)), thread_name_prefix="job")

    async def run(self) -> None:
        """Serve jobs until cancelled; the one at work is left open then."""
        tasks = [asyncio.create_task(self._look(), name="timers of jobs")]
        tasks += [asyncio.create_task(self._serve_lane(lane), name=f"jobs: {', '.join(lane)}") for lane in self._lanes]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for doer in self._doers.values():
                doer.give_up()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve_lane(self, kinds: Collection[str]) -> None:
        served = -1
        order = JobOrder()
        while True:
            try:
                served = await self._turn(kinds, order, served)
            except FrazilError as error:
                log.warning("jobs: %s", error)
            except Exception:  # a JVM that is gone is noticed by the commits, which end this process
                log.exception("jobs failed")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        while True:
            for timer in self._timers:
                try:
                    await asyncio.to_thread(timer.look, datetime.now(UTC))
                except FrazilError as error:
                    log.warning("a timer: %s", error)
                except Exception:
                    log.exception("a timer failed")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _turn(self, kinds: Collection[str], order: JobOrder, served: int) -> int:
        """Do the jobs that are open, unless the registry is the one of the last turn; its version.

        After each job they are looked at again: whoever asked meanwhile has a turn before another one's second job.
        """
        registry = self._lake.registry
        version = await asyncio.to_thread(registry.version)
        if version != served:
            while (job := order.next(await asyncio.to_thread(open_jobs, registry, kinds))) is not None:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._serve, job)
        return version

    def _serve(self, job: Job) -> None:
        began = time.monotonic()
        try:
            result = {"state": "done", **self._done(job)}
        except Py4JNetworkError:
            raise
        except FrazilError as error:
            log.warning("job %s failed: %s", job.id, error)
            result = {"state": "failed", **error.body()}
        except Exception as error:
            log.exception("job %s failed", job.id)
            unknown = FrazilError(f"{type(error).__name__}: {str(error)[:300]}", hint="the pipeline's log tells more")
            result = {"state": "failed", **unknown.body()}
        seconds = round(time.monotonic() - began, 3)
        self._note("job", job=job.id, job_kind=job.kind, table=job.subject, seconds=seconds, report=result)
        finish_job(self._lake.registry, job, result)

    def _done(self, job: Job) -> dict[str, Any]:
        """Do it, and again after what may pass by itself."""
        registry = self._lake.registry
        begun = job_status(registry, job.id).get("progress", {}).get("begun", 0) + 1
        if begun > _BEGINNINGS:
            raise FrazilError(
                f"the pipeline died {_BEGINNINGS} times while it did this",
                code="job_given_up",
                hint="its log tells why; ask again with less at once, or give the driver more memory",
            )
        set_progress(registry, job, {"begun": begun})
        last_told = 0.0

        def tell(progress: dict[str, Any]) -> None:
            nonlocal last_told
            if time.monotonic() - last_told >= _TELL_SECONDS:
                last_told = time.monotonic()
                set_progress(registry, job, {**progress, "begun": begun})

        for attempt in range(_TRIES):
            try:
                return self._doers[job.kind].do(job, tell)
            except Unavailable:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(2.0**attempt)
        raise AssertionError("the last try returns or raises")
