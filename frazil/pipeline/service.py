"""The pipeline: a committer for every table of the lake, side by side, and an honest word about how they fare."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.bus import EventBus, StreamMissing
from frazil.errors import BusReplaced, DataLoss, FrazilError, NotFound
from frazil.lake import Lake, paired
from frazil.pipeline.committer import Committed, Committer, Limits
from frazil.pipeline.folding import Folding, entities_of
from frazil.pipeline.jobs import JobRunner
from frazil.pipeline.report import REPORT_SECONDS, Report, TableReport
from frazil.pipeline.target import Target
from frazil.pipeline.upkeep import Upkeep
from frazil.storage import Journal

log = logging.getLogger(__name__)
_DISCOVERY_SECONDS = 0.5
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_TIDY_EVERY_COMMITS = 20
_UNSTREAMED_SECONDS = 5.0


class Pipeline:
    def __init__(
        self,
        *,
        lake: Lake,
        bus: EventBus,
        make_target: Callable[[str], Target],
        is_alive: Callable[[], bool],
        journal: Journal,
        report_path: Path,
        window_seconds: float,
        limits: Limits,
        parallel_tables: int = 4,
        degraded_after_failures: int = 3,
        snapshot_budget: int = 100,
        make_upkeep: Callable[[Callable[..., None]], Upkeep] | None = None,
        make_jobs: Callable[[Callable[..., None]], JobRunner] | None = None,
        make_folding: Callable[[Callable[..., None]], Folding] | None = None,
    ) -> None:
        self._lake = lake
        self._bus = bus
        self._make_target = make_target
        self._is_alive = is_alive
        self._journal = journal
        self._report_path = report_path
        self._window_seconds = window_seconds
        self._limits = limits
        self._executor = ThreadPoolExecutor(parallel_tables, thread_name_prefix="commit")
        self._degraded_after = degraded_after_failures
        self._snapshot_budget = snapshot_budget
        self._upkeep = make_upkeep(self._note) if make_upkeep else None
        self._jobs = make_jobs(self._note) if make_jobs else None
        self._folding = make_folding(self._note) if make_folding else None
        self._report = Report()
        self._committers: dict[str, Committer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Commit what has been received so far, then return from `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Commit every table until told to stop. Raises when the engine behind it is gone."""
        self._report.state = "ok"
        beside = [asyncio.create_task(self._report_regularly())]
        if self._upkeep is not None:
            beside.append(asyncio.create_task(self._upkeep.run(self._is_behind), name="maintenance"))
        if self._jobs is not None:
            beside.append(asyncio.create_task(self._jobs.run(), name="jobs"))
        if self._folding is not None:
            beside.append(asyncio.create_task(self._folding.run(self._stopping.is_set), name="folding"))
        try:
            while not self._stopping.is_set():
                await self._discover()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _DISCOVERY_SECONDS)
            await asyncio.gather(*self._tasks.values())
            self._report.state = "stopped"
        except BaseException as error:
            self._report.state, self._report.reason = "degraded", str(error)
            raise
        finally:
            for task in (*beside, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(*beside, *self._tasks.values(), return_exceptions=True)
            self._report.write(self._report_path)
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _discover(self) -> None:
        """Start a committer for each new table; end those of dropped ones; pass on a failure that ends everything."""
        try:
            locations = await asyncio.to_thread(self._lake.locations)
            # The base of an entity is fed from its history, and that by a committer of its own.
            names = set(locations) - set(entities_of(locations))
        except FrazilError as error:
            self._failed(None, error)
            return
        self._report.failed_cycles, self._report.reason = 0, None
        for name, task in list(self._tasks.items()):
            if task.done():
                if not task.cancelled():
                    task.result()
                del self._tasks[name]
                self._committers.pop(name, None)
                self._report.tables.pop(name, None)
            elif name not in names:
                task.cancel()
        for name in names - self._tasks.keys():
            self._report.tables[name] = TableReport()
            self._tasks[name] = asyncio.create_task(self._commit_table(name), name=f"commit {name}")

    def _is_behind(self) -> bool:
        """Whether events wait for a commit that could be made sooner: then nothing else may use the cores."""
        return self._stopping.is_set() or any(committer.behind for committer in self._committers.values())

    async def _commit_table(self, name: str) -> None:
        """Cycles of one table until it is dropped or the pipeline stops. Failures are told, and tried again."""
        committer: Committer | None = None
        target: Target | None = None
        drained = False
        while not drained:
            try:
                if committer is None or target is None:
                    target, committer = await self._open(name)
                drained = self._stopping.is_set()
                done = await committer.cycle(idle_seconds=0.0 if drained else 1.0, draining=drained)
                self._succeeded(name, done)
                drained = drained and done is None
                if done and self._report.tables[name].commits % _TIDY_EVERY_COMMITS == 0:
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
                if not await asyncio.to_thread(self._is_alive):
                    raise EngineGone("Spark's JVM does not answer any more") from error
                await self._pause_after(name, error)
                committer, drained = None, self._stopping.is_set()

    async def _open(self, name: str) -> tuple[Target, Committer]:
        target = self._make_target(name)
        table = await asyncio.to_thread(self._lake.table, name)
        if not table.spec.is_streamed:
            raise NotStreamed(f"{name} takes no events")
        if table.spec.kind == "entity":
            paired(table, None)
        try:
            stream = await self._bus.open(table.stream)
        except StreamMissing as error:
            raise BusReplaced(
                f"the bus has no stream for {name}: it was lost or replaced",
                hint=f"`frazil repair bus {table.spec.short_name}` tells what is lost and goes on from there",
            ) from error
        committer = Committer(
            target, stream, window_seconds=self._window_seconds, limits=self._limits, executor=self._executor
        )
        self._committers[name] = committer
        return target, committer

    async def _tidy(self, name: str, target: Target) -> None:
        if self._upkeep is not None and name in self._upkeep.held:
            return
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        expired = await loop.run_in_executor(self._executor, lambda: target.tidy(keep_snapshots=self._snapshot_budget))
        if expired:
            seconds = round(time.monotonic() - started, 3)
            self._note("expire", table=name, snapshots=expired, seconds=seconds)

    def _succeeded(self, name: str, done: Committed | None) -> None:
        report = self._report.tables[name]
        if report.failed_cycles:
            self._note("recovered", table=name, after_failures=report.failed_cycles)
        report.failed_cycles, report.last_error = 0, None
        if done is None:
            return
        report.commits += 1
        report.rows += done.rows
        report.duplicates += done.duplicates
        report.commit_seconds += done.seconds
        report.last_commit_at = datetime.now(UTC).isoformat()
        entry = {"batch": done.batch, "snapshot": str(done.snapshot_id), "token": done.token, "rows": done.rows}
        log.info("committed", extra={"table": name, **entry})
        self._note(
            "commit",
            table=name,
            **entry,
            duplicates=done.duplicates,
            messages=done.messages,
            watermark=done.watermark,
            seconds=round(done.seconds, 4),
        )

    async def _pause_after(self, name: str, error: Exception) -> None:
        self._committers.pop(name, None)  # a table that cannot commit must not keep the others from maintenance
        failures = self._failed(name, error)
        pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _failed(self, name: str | None, error: Exception) -> int:
        """Note a failed cycle: in the report always, in log and journal when it is new."""
        told = error.body()["error"] if isinstance(error, FrazilError) else None
        told = told or {"code": "internal", "message": f"{type(error).__name__}: {str(error)[:500]}", "hint": ""}
        report: Report | TableReport = self._report.tables[name] if name else self._report
        report.failed_cycles += 1
        new = not isinstance(report, TableReport) or report.last_error != told or report.failed_cycles % 60 == 1
        if isinstance(report, TableReport):
            report.last_error = told
        else:
            report.reason = told["message"]
        if new:
            level = logging.ERROR if isinstance(error, DataLoss) else logging.WARNING
            log.log(level, "cycle failed: %s", told["message"], extra={"table": name}, exc_info=error)
            self._note("failure", table=name, failed_cycles=report.failed_cycles, **told)
        return report.failed_cycles

    def _note(self, kind: str, **entry: Any) -> None:
        """An entry in the journal. A disk that has no room for it must not stop commits that may go elsewhere."""
        try:
            self._journal.append(kind, **entry)
        except OSError as error:
            log.warning("cannot write the journal: %s", error, extra={"table": entry.get("table")})

    async def _report_regularly(self) -> None:
        while True:
            self._judge_state()
            try:
                await asyncio.to_thread(self._report.write, self._report_path)
            except OSError as error:  # then silence tells that something is wrong, until there is room again
                log.warning("cannot write the report: %s", error)
            await asyncio.sleep(REPORT_SECONDS)

    def _judge_state(self) -> None:
        failing = {n: r for n, r in self._report.tables.items() if r.failed_cycles >= self._degraded_after}
        if failing:
            name, worst = max(failing.items(), key=lambda item: item[1].failed_cycles)
            message = (worst.last_error or {}).get("message", "")
            self._report.state = "degraded"
            self._report.reason = f"{name} has failed for {worst.failed_cycles} cycles: {message}"
        elif self._report.failed_cycles >= self._degraded_after:
            self._report.state = "degraded"
        else:
            self._report.state, self._report.reason = "ok", None


class NotStreamed(FrazilError):
    """Nothing is to be committed from the bus to this table."""


class EngineGone(FrazilError):
    """The JVM died. Only a new process gets a new one: the supervisor starts it."""

    code = "engine_gone"
    transient = True
