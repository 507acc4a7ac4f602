"""Pipeline: a committer for every table of the lake, work beside the commits, and the status of both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.bus import EventBus, StreamMissing
from frazil.errors import BusReplaced, DataLoss, FrazilError, NotFound
from frazil.lake.catalog import Lake, pair_entity
from frazil.pipeline.commit.committer import BatchLimits, Committed, Committer
from frazil.pipeline.commit.row_errors import is_out_of_memory
from frazil.pipeline.commit.suspects import Suspect, Suspects
from frazil.pipeline.commit.target import CommitTarget
from frazil.pipeline.entities.fold_scheduler import FoldScheduler, entities_of
from frazil.pipeline.heartbeat import EngineHeartbeat
from frazil.pipeline.jobs.runner import JobRunner
from frazil.pipeline.journal_notes import note_writer
from frazil.pipeline.maintenance.scheduler import MaintenanceScheduler
from frazil.pipeline.status_file import REPORT_SECONDS, PipelineStatus, TableCommitStatus
from frazil.storage import Journal

log = logging.getLogger(__name__)
_DISCOVERY_SECONDS = 0.5
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_TIDY_EVERY_COMMITS = 20
_UNSTREAMED_SECONDS = 5.0
_LONG_STAGE_SECONDS = 120.0
"""A stage or a fold that takes longer degrades the pipeline: 500,000 rows take some seconds."""
_SHOWN_SECONDS = 3.0
"""A restart of background work shows in the status for so long after it."""
_HELD_SECONDS = 5.0
_LONGEST_HELD_SECONDS = 30.0
"""A table that the engine was lost with again begins when each table that it was lost with less often has had its first
cycle, and some seconds later, more with each loss: of several suspects, those that are not to blame have committed
before the one that is."""
_TURN_POLL_SECONDS = 0.1
_LONGEST_TURN_SECONDS = 300.0
"""A first cycle that takes longer is not waited for."""


class Pipeline:
    def __init__(
        self,
        *,
        lake: Lake,
        bus: EventBus,
        make_target: Callable[[str], CommitTarget],
        is_alive: Callable[[], bool],
        journal: Journal,
        report_path: Path,
        suspects_path: Path,
        window_seconds: float,
        limits: BatchLimits,
        parallel_tables: int = 4,
        degraded_after_failures: int = 3,
        snapshot_budget: int = 100,
        make_maintenance: Callable[[], MaintenanceScheduler] | None = None,
        make_jobs: Callable[[], JobRunner] | None = None,
        make_folding: Callable[[Suspects], FoldScheduler] | None = None,
        held_tables: Collection[str] = (),
    ) -> None:
        """`held_tables` are tables of which nothing may be removed; maintenance adds to it."""
        self._lake = lake
        self._bus = bus
        self._make_target = make_target
        self._is_alive = is_alive
        self._note = note_writer(journal)
        self._status_path = report_path
        self._window_seconds = window_seconds
        self._limits = limits
        self._executor = ThreadPoolExecutor(parallel_tables, thread_name_prefix="commit")
        self._degraded_after = degraded_after_failures
        self._snapshot_budget = snapshot_budget
        self._make_maintenance = make_maintenance
        self._make_jobs = make_jobs
        self._make_folding = make_folding
        self._held_tables = held_tables
        self._suspects = Suspects(suspects_path)
        self._heartbeat = EngineHeartbeat(is_alive)
        self._had_turn: set[str] = set()
        """Tables whose first cycle in this process is over, whether it committed, found nothing or failed."""
        self._failed_work: dict[str, tuple[float, str]] = {}
        """Background work that ended by an error and was begun again: until when the status shows it, and the error."""
        self._status = PipelineStatus()
        self._committers: dict[str, Committer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Commit what has been received so far, then return from `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Commit every table until `stop`. Raises when the engine is gone."""
        self._status.state = "ok"
        self._heartbeat.start()
        background = [
            asyncio.create_task(self._run_forever(name, work), name=name)
            for name, work in self._background_work().items()
        ]
        try:
            while not self._stopping.is_set():
                await self._discover()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _DISCOVERY_SECONDS)
            ended = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            for error in ended:
                if isinstance(error, EngineGone):
                    raise error
            self._status.state = "stopped"
        except EngineGone as error:
            blamed = self._suspects.lost()
            self._status.state, self._status.reason = "degraded", str(error)
            self._note("engine_lost", tables=blamed)
            raise
        except BaseException as error:
            self._status.state, self._status.reason = "degraded", str(error)
            raise
        finally:
            self._heartbeat.stop()
            for task in (*background, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(*background, *self._tasks.values(), return_exceptions=True)
            self._status.write(self._status_path)
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _background_work(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The work that runs beside the commits; each is created again when it is begun again."""
        work_by_name: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {"report": self._write_status_regularly}
        if (make_maintenance := self._make_maintenance) is not None:
            work_by_name["maintenance"] = lambda: make_maintenance().run(self._is_behind)
        if (make_jobs := self._make_jobs) is not None:
            work_by_name["jobs"] = lambda: make_jobs().run(self._is_behind)
        if (make_folding := self._make_folding) is not None:
            work_by_name["folding"] = lambda: make_folding(self._suspects).run(self._stopping.is_set)
        return work_by_name

    async def _run_forever(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the work until cancelled. Work that ends by an error is noted, and begun again."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await work()
                reason = "it ended"
            except Exception as error:
                log.exception("%s failed", name)
                reason = f"{type(error).__name__}: {str(error)[:300]}"
            if (task := asyncio.current_task()) is not None and task.cancelling():
                return  # it was cancelled, and raised something else on its way out
            # One that ran well for a while begins with a short pause again.
            failures = 1 if time.monotonic() - began > _RETRY_SECONDS[-1] * 2 else failures + 1
            pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1]
            self._failed_work[name] = (time.monotonic() + pause + _SHOWN_SECONDS, reason)
            self._note("work_failed", work=name, message=reason)
            await asyncio.sleep(pause)

    async def _discover(self) -> None:
        """Start a committer for each new table, and again for one that ended by an error; end those of dropped ones.

        Only a lost engine ends the pipeline.
        """
        if self._heartbeat.is_gone:
            raise EngineGone("Spark's JVM does not answer any more")
        try:
            locations = await asyncio.to_thread(self._lake.locations)
            # The base of an entity is fed from its history, and that by a committer of its own.
            names = set(locations) - set(entities_of(locations))
        except FrazilError as error:
            self._failed(None, error)
            return
        self._status.failed_cycles, self._status.reason = 0, None
        self._suspects.keep_only(locations)
        for name, task in list(self._tasks.items()):
            if task.done():
                self._task_ended(name, task, is_there=name in names)
            elif name not in names:
                task.cancel()
        for name in names - self._tasks.keys():
            self._status.tables.setdefault(name, TableCommitStatus())
            self._tasks[name] = asyncio.create_task(self._commit_table(name), name=f"commit {name}")

    def _task_ended(self, name: str, task: asyncio.Task[None], *, is_there: bool) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, EngineGone):
            raise error
        del self._tasks[name]
        self._had_turn.discard(name)
        self._committers.pop(name, None)
        if isinstance(error, Exception) and is_there:
            self._failed(name, error)  # that one table's trouble: it is begun again
            return
        self._status.tables.pop(name, None)

    def _is_behind(self) -> bool:
        """Whether events wait for a commit that could be made sooner: then nothing else may use the cores.

        Any thread may call it.
        """
        return self._stopping.is_set() or any(committer.behind for committer in list(self._committers.values()))

    async def _commit_table(self, name: str) -> None:
        """Cycles of one table until it is dropped or the pipeline stops. Failures are noted, and tried again."""
        committer: Committer | None = None
        target: CommitTarget | None = None
        drained = False
        while not drained:
            try:
                await self._held_back(name)
                if committer is None or target is None:
                    target, committer = await self._open(name)
                drained = self._stopping.is_set()
                if drained and self._suspects.of(name) is not None:
                    return  # what might take the engine with it waits on the bus for the next start
                done = await committer.cycle(idle_seconds=0.0 if drained else 1.0, draining=drained)
                self._succeeded(name, done)
                drained = drained and done is None
                if done and self._status.tables[name].commits % _TIDY_EVERY_COMMITS == 0:
                    await self._tidy(name, target)
            except NotStreamed:
                # Looked at again now and then: another table may take the name.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _UNSTREAMED_SECONDS)
                drained = self._stopping.is_set()
            except NotFound as error:
                if error.code == "table_not_found":
                    return
                await self._pause_after(name, error)
                committer = None
            except Exception as error:
                if is_out_of_memory(error):
                    raise EngineGone("Spark's JVM ran out of memory") from error
                if not await asyncio.to_thread(self._is_alive):
                    raise EngineGone("Spark's JVM does not answer any more") from error
                self._suspects.ended(name)
                await self._pause_after(name, error)
                committer, drained = None, self._stopping.is_set()
            finally:
                self._had_turn.add(name)

    async def _held_back(self, name: str) -> None:
        """A table that the engine was lost with begins when those that it was lost with less often had their turn."""
        suspect = self._suspects.of(name)
        if suspect is None or name in self._had_turn:
            return
        pause = min(_HELD_SECONDS * (suspect.losses - 1), _LONGEST_HELD_SECONDS)
        deadline = time.monotonic() + _LONGEST_TURN_SECONDS
        while self._goes_before(suspect) and not self._stopping.is_set() and time.monotonic() < deadline:
            await asyncio.sleep(_TURN_POLL_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _goes_before(self, suspect: Suspect) -> set[str]:
        """Tables that have not had their first cycle, and that the engine was lost with less often."""
        losses = {name: held.losses for name, held in self._suspects.all().items()}
        return {name for name in self._tasks.keys() - self._had_turn if losses.get(name, 0) < suspect.losses}

    async def _open(self, name: str) -> tuple[CommitTarget, Committer]:
        target = self._make_target(name)
        table = await asyncio.to_thread(self._lake.table, name)
        if not table.spec.is_streamed:
            raise NotStreamed(f"{name} takes no events")
        if table.spec.kind == "entity":
            pair_entity(table, None)
        try:
            stream = await self._bus.open(table.stream)
        except StreamMissing as error:
            raise BusReplaced(
                f"the bus has no stream for {name}: it was lost or replaced",
                hint=f"`frazil repair bus {table.spec.short_name}` shows what is lost and continues from there",
            ) from error
        committer = Committer(
            target,
            stream,
            window_seconds=self._window_seconds,
            limits=self._limits,
            executor=self._executor,
            suspects=self._suspects,
        )
        self._committers[name] = committer
        return target, committer

    async def _tidy(self, name: str, target: CommitTarget) -> None:
        if name in self._held_tables:
            return
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        expired = await loop.run_in_executor(self._executor, lambda: target.tidy(keep_snapshots=self._snapshot_budget))
        if expired:
            seconds = round(time.monotonic() - started, 3)
            self._note("expire", table=name, snapshots=expired, seconds=seconds)

    def _succeeded(self, name: str, done: Committed | None) -> None:
        status = self._status.tables[name]
        if status.failed_cycles:
            self._note("recovered", table=name, after_failures=status.failed_cycles)
        status.failed_cycles, status.last_error = 0, None
        if self._suspects.committed(name, done.messages if done else 0):
            self._note("let_go", table=name)
        if done is None:
            return
        status.commits += 1
        status.rows += done.rows
        status.duplicates += done.duplicates
        status.dead_letters += done.dead_letters
        status.commit_seconds += done.seconds
        status.stage_seconds += done.times.stage_seconds
        status.publish_seconds += done.times.publish_seconds
        status.last_commit_at = datetime.now(UTC).isoformat()
        entry = {"batch": done.batch, "snapshot": str(done.snapshot_id), "token": done.token, "rows": done.rows}
        log.info("batch committed", extra={"table": name, **entry})
        self._note(
            "commit",
            table=name,
            **entry,
            duplicates=done.duplicates,
            dead_letters=done.dead_letters,
            messages=done.messages,
            watermark=done.watermark,
            seconds=round(done.seconds, 4),
        )
        if done.dead_letters:
            self._note("dead_letters", table=name, events=done.dead_letters, batch=done.batch)
            log.warning("events became dead letters: %d", done.dead_letters, extra={"table": name})

    async def _pause_after(self, name: str, error: Exception) -> None:
        self._committers.pop(name, None)  # a table that cannot commit must not keep the others from maintenance
        failures = self._failed(name, error)
        pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _failed(self, name: str | None, error: Exception) -> int:
        """Note a failed cycle: in the status always, in log and journal when the error is new."""
        fields = error.body()["error"] if isinstance(error, FrazilError) else None
        fields = fields or {"code": "internal", "message": f"{type(error).__name__}: {str(error)[:500]}", "hint": ""}
        status: PipelineStatus | TableCommitStatus = self._status.tables[name] if name else self._status
        status.failed_cycles += 1
        new = not isinstance(status, TableCommitStatus) or status.last_error != fields or status.failed_cycles % 60 == 1
        if isinstance(status, TableCommitStatus):
            status.last_error = fields
        else:
            status.reason = fields["message"]
        if new:
            level = logging.ERROR if isinstance(error, DataLoss) else logging.WARNING
            log.log(level, "cycle failed: %s", fields["message"], extra={"table": name}, exc_info=error)
            self._note("failure", table=name, failed_cycles=status.failed_cycles, **fields)
        return status.failed_cycles

    async def _write_status_regularly(self) -> None:
        while True:
            self._judge_state()
            try:
                await asyncio.to_thread(self._status.write, self._status_path)
            except OSError as error:  # then the age of the file shows the problem, until there is room again
                log.warning("write of the status file failed: %s", error)
            await asyncio.sleep(REPORT_SECONDS)

    def _judge_state(self) -> None:
        held = self._suspects.all()
        for name, status in self._status.tables.items():
            status.held_back = held[name].body() if name in held else None
        self._status.engine_silent_seconds = round(self._heartbeat.silent_seconds, 1)
        failing = {n: r for n, r in self._status.tables.items() if r.failed_cycles >= self._degraded_after}
        if failing:
            name, worst = max(failing.items(), key=lambda item: item[1].failed_cycles)
            message = (worst.last_error or {}).get("message", "")
            self._status.state = "degraded"
            self._status.reason = f"{name} has failed for {worst.failed_cycles} cycles: {message}"
        elif held:
            name, suspect = next(iter(held.items()))
            self._status.state, self._status.reason = "degraded", suspect.reason(name)
        elif ended := [f"{n}: {why}" for n, (until, why) in self._failed_work.items() if time.monotonic() < until]:
            self._status.state, self._status.reason = "degraded", f"restarted after an error: {ended[0]}"
        elif self._status.failed_cycles >= self._degraded_after:
            self._status.state = "degraded"
        elif (longest := self._suspects.longest()) is not None and longest[1] > _LONG_STAGE_SECONDS:
            self._status.state = "degraded"
            self._status.reason = f"{longest[0]} has been under way for {longest[1]:.0f} s"
        else:
            self._status.state, self._status.reason = "ok", None


class NotStreamed(FrazilError):
    """Nothing is to be committed from the bus to this table."""


class EngineGone(FrazilError):
    """The JVM died. Only a new process gets a new one: the supervisor starts it."""

    code = "engine_gone"
    transient = True
