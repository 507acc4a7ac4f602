"""Spark tasks of a bulk job: the same work on each of many pieces, on the cores that commits leave free."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from frazil.errors import FrazilError, Unavailable
from frazil.pipeline.commit.target import spark_errors

BULK, EMBED = "bulk", "embed"
"""Pools of Spark's scheduler. Each works in order of arrival: work that must not wait has another pool."""
_LOOK_SECONDS = 0.5

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _TaskError:
    """An error of ours on its way back from a task: as an exception, Spark would make a text of it."""

    kind: type[FrazilError]
    message: str
    code: str
    hint: str
    details: Any


class Tasks(Protocol):
    """Runs tasks for one thread; `cancel` may be called from another."""

    @property
    def cores(self) -> int:
        """How many pieces are worked on side by side."""

    @property
    def session(self) -> SparkSession:
        """For queries."""

    def run(
        self,
        pieces: Sequence[_Piece],
        work: Callable[[_Piece], _Result],
        *,
        doing: str,
        report_done: Callable[[int], None] | None = None,
    ) -> list[_Result]:
        """`work` of each piece, in order; raises the error of the first piece that failed.

        `report_done` takes the number of pieces done, now and then. Work must be safe to do twice: a task may be
        retried.
        """

    def cancel(self) -> None:
        """Let the running tasks fail soon."""


class SparkTasks:
    def __init__(self, session: SparkSession, pool: str = BULK) -> None:
        self.session = session.newSession()
        self._pool = pool
        self._context: SparkContext = session.sparkContext
        self._groups: set[str] = set()

    @property
    def cores(self) -> int:
        return int(self._context.defaultParallelism)

    def run(
        self,
        pieces: Sequence[_Piece],
        work: Callable[[_Piece], _Result],
        *,
        doing: str,
        report_done: Callable[[int], None] | None = None,
    ) -> list[_Result]:
        if not pieces:
            return []
        group = f"{self._pool}-{uuid.uuid4().hex[:8]}"
        self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        self._context.setJobGroup(group, doing, interruptOnCancel=False)
        self._groups.add(group)
        try:
            with self._reporting(group, report_done), spark_errors(doing, code="bulk_failed"):
                found = self._context.parallelize(list(pieces), len(pieces)).map(_caught(work)).collect()
        finally:
            self._groups.discard(group)
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        for result in found:
            if isinstance(result, _TaskError):
                raise result.kind(result.message, code=result.code, hint=result.hint, details=result.details)
        return found

    def cancel(self) -> None:
        for group in list(self._groups):
            with contextlib.suppress(Exception):  # the JVM may be gone by now, and with it the job
                self._context.cancelJobGroup(group)

    @contextlib.contextmanager
    def _reporting(self, group: str, report_done: Callable[[int], None] | None) -> Iterator[None]:
        if report_done is None:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                with contextlib.suppress(Exception):  # a look that fails is a look less
                    report_done(self._done(group))

        watcher = threading.Thread(target=watch, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _done(self, group: str) -> int:
        tracker = self._context.statusTracker()
        done = 0
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job else ():
                stage = tracker.getStageInfo(stage_id)
                done += stage.numCompletedTasks if stage else 0
        return done


def _caught(work: Callable[[_Piece], _Result]) -> Callable[[_Piece], Any]:
    def caught(piece: _Piece) -> _Result | _TaskError:
        try:
            return work(piece)
        except FrazilError as error:
            kind = Unavailable if isinstance(error, Unavailable) else type(error)
            return _TaskError(kind, error.message, error.code, error.hint or "", error.details)

    return caught
