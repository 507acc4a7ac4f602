"""Job runner: one job at a time in each lane, beside the commits, until it has a result.

A pipeline that dies amid a job leaves it open, and its successor does it again: every job is made so that doing it
again is finishing it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from py4j.protocol import Py4JNetworkError

from frazil.errors import FrazilError, Unavailable
from frazil.lake.catalog import Lake
from frazil.pipeline.jobs.lanes import Lane
from frazil.pipeline.periodic import run_every
from frazil.registry import Job, ProgressCallback, finish_job, job_status, open_jobs, set_progress

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_PROGRESS_SECONDS = 1.0
_MAX_STARTS = 5
"""A job that was begun so often without a result has taken the process with it each time."""


class JobHandler(Protocol):
    """Does the jobs of one kind, in the thread that calls it."""

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        """The report of the finished job. `Unavailable` means that it may work later: it is tried again."""

    def cancel(self) -> None:
        """Let the running job fail soon; it is done again later. Called by another thread."""


class JobTrigger(Protocol):
    """Submits jobs by itself: because of the clock, or of what it sees."""

    def poll(self, now: datetime) -> None:
        """Called every half second or so, in a thread; submits what is due."""


class JobRunner:
    """Jobs of one lane are done one after the other, callers in turn; those of two lanes do not wait for each other."""

    def __init__(
        self,
        lake: Lake,
        handlers: Mapping[str, JobHandler],
        note: Callable[..., None],
        *,
        lanes: Sequence[Lane],
        triggers: Sequence[JobTrigger] = (),
    ) -> None:
        self._lake = lake
        self._handlers = handlers
        self._note = note
        self._triggers = triggers
        self._lanes = lanes

    async def run(self, is_behind: Callable[[], bool] = lambda: False) -> None:
        """Serve jobs until cancelled; the one at work is left open then."""
        tasks = [asyncio.create_task(run_every(_POLL_SECONDS, self._poll_triggers, name="job trigger poll"))]
        tasks += [asyncio.create_task(self._serve_lane(lane, is_behind)) for lane in self._lanes]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for kind, handler in self._handlers.items():
                try:
                    handler.cancel()
                except Exception:  # of an engine that is gone there is nothing to cancel
                    log.warning("job handler not cancelled: %s", kind, exc_info=True)

    async def _poll_triggers(self) -> None:
        for trigger in self._triggers:
            try:
                await asyncio.to_thread(trigger.poll, datetime.now(UTC))
            except FrazilError as error:
                log.warning("job trigger failed: %s", error)
            except Exception:
                log.exception("job trigger failed")

    async def _serve_lane(self, lane: Lane, is_behind: Callable[[], bool]) -> None:
        served = -1

        async def turn() -> None:
            """Do the jobs that are open, unless the registry is the one of the last turn.

            After each job they are listed again: a new caller has a turn before another caller's second job.
            """
            nonlocal served
            version = await asyncio.to_thread(self._lake.registry.version)
            if version != served:
                while (job := lane.order.next(await self._open_jobs(lane))) is not None:
                    await self._serve(job, lane, is_behind)
            served = version

        await run_every(_POLL_SECONDS, turn, name=f"job lane {'/'.join(lane.kinds)}")

    async def _open_jobs(self, lane: Lane) -> list[Job]:
        return await asyncio.to_thread(open_jobs, self._lake.registry, lane.kinds)

    async def _serve(self, job: Job, lane: Lane, is_behind: Callable[[], bool]) -> None:
        """Do the job and write its result. Where this is cancelled, the job stays open."""
        began = time.monotonic()
        try:
            result = {"state": "done", **await self._report(job, lane, is_behind)}
        except Py4JNetworkError:
            raise
        except FrazilError as error:
            log.warning("job failed: %s", error, extra={"job": job.id})
            result = {"state": "failed", **error.body()}
        except Exception as error:
            log.exception("job failed", extra={"job": job.id})
            unknown = FrazilError(f"{type(error).__name__}: {str(error)[:300]}", hint="look at the pipeline's log")
            result = {"state": "failed", **unknown.body()}
        seconds = round(time.monotonic() - began, 3)
        await asyncio.to_thread(self._finish, job, result, seconds)

    async def _report(self, job: Job, lane: Lane, is_behind: Callable[[], bool]) -> dict[str, Any]:
        """The report of the job, which is tried again after what may pass by itself."""
        handler = self._handlers[job.kind]
        report_progress: ProgressCallback | None = None

        def work() -> dict[str, Any]:
            nonlocal report_progress
            # Not before its turn has come: a job that only waited was not begun.
            report_progress = report_progress or self._begin(job)
            return handler.run(job, report_progress)

        for pause in lane.pauses_seconds:
            try:
                return await lane.run(work, cancel=handler.cancel, is_behind=is_behind)
            except Unavailable as error:
                log.info("job is tried again: %s", error, extra={"job": job.id})
                await asyncio.sleep(pause)
        return await lane.run(work, cancel=handler.cancel, is_behind=is_behind)

    def _begin(self, job: Job) -> ProgressCallback:
        """Count that the job is begun, where its next process sees it; what its handler reports progress to."""
        registry = self._lake.registry
        begun = job_status(registry, job.id).get("progress", {}).get("begun", 0) + 1
        if begun > _MAX_STARTS:
            raise FrazilError(
                f"the pipeline died {_MAX_STARTS} times during this job",
                code="job_given_up",
                hint="look at its log; submit a smaller job, or give the driver more memory",
            )
        set_progress(registry, job, {"begun": begun})
        reported_at = 0.0

        def report_progress(progress: Mapping[str, Any]) -> None:
            nonlocal reported_at
            if time.monotonic() - reported_at >= _PROGRESS_SECONDS:
                reported_at = time.monotonic()
                set_progress(registry, job, {**progress, "begun": begun})

        return report_progress

    def _finish(self, job: Job, result: dict[str, Any], seconds: float) -> None:
        self._note("job", job=job.id, job_kind=job.kind, table=job.subject, seconds=seconds, report=result)
        finish_job(self._lake.registry, job, result)
