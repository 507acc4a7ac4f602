"""When maintenance is done: by the clock or because somebody asks, one step at a time, and never in the way of commits.

A step begins only while no table is behind, and is given up when one falls behind. What is given up, or lost against a
commit, is simply planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JNetworkError

from frazil.errors import DataLoss, FrazilError, NotFound, Unavailable
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.maintenance import (
    Health,
    LastRuns,
    MaintenanceStep,
    health_of,
    last_runs_of,
    plan_maintenance,
    remember_upkeep,
    requested_steps,
    small_below,
)
from frazil.pipeline.jobs.order import JobOrder
from frazil.pipeline.maintenance.spark_steps import Done
from frazil.registry import Job, finish_job, open_jobs

log = logging.getLogger(__name__)
KIND = "maintenance"
_T = TypeVar("_T")
_LOOK_SECONDS = 1.0
_WATCH_SECONDS = 0.2
_TRIES = 5
_NEVER = datetime.fromtimestamp(0, UTC)


class MaintenanceWorker(Protocol):
    """Does a step in the thread that calls it."""

    def prove(self, name: str) -> object:
        """Raises `DataLoss` when a rewrite of the table changed its rows."""

    def run(self, step: MaintenanceStep) -> Done:
        """Raises `Unavailable` when a commit came first, or when it was given up."""

    def give_up(self) -> None:
        """Let the running step fail soon."""


class MaintenanceScheduler:
    def __init__(
        self,
        *,
        lake: Lake,
        worker: MaintenanceWorker,
        settings: MaintenanceSettings,
        snapshot_budget: int,
        note: Callable[..., None],
    ) -> None:
        self._lake = lake
        self._worker = worker
        self._settings = settings
        self._snapshot_budget = snapshot_budget
        self._note = note
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._looked_at: dict[str, float] = {}
        self._order = JobOrder()
        self._registry_version = -1
        """As of the last look at the jobs: one cheap question tells whether there may be new ones."""
        self.held: set[str] = set()
        """Tables whose rewrite failed its audit: their old files must stay until a person has looked."""

    async def run(self, is_behind: Callable[[], bool]) -> None:
        """Look after the tables until cancelled."""
        try:
            while True:
                if not is_behind():
                    try:
                        await self._turn(is_behind)
                    except FrazilError as error:
                        log.warning("maintenance: %s", error)
                    except Exception:  # a JVM that is gone is noticed by the commits, which end this process
                        log.exception("maintenance failed")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, is_behind: Callable[[], bool]) -> None:
        version = await self._blocking(self._lake.registry.version)
        if version != self._registry_version:
            while job := self._order.next(await self._blocking(lambda: open_jobs(self._lake.registry, [KIND]))):
                await self._serve(job, is_behind)
            self._registry_version = version
        if not self._settings.enabled:
            return
        for name in await self._blocking(self._lake.names):
            if name not in self._looked_at:
                # What an earlier process died after is compared before its old files may go.
                self._looked_at[name] = time.monotonic()
                await self._prove(name)
            last = self._looked_at[name]
            if time.monotonic() - last >= self._settings.interval_seconds and not is_behind():
                self._looked_at[name] = time.monotonic()
                await self._look_after(name, is_behind)

    async def _prove(self, name: str) -> None:
        try:
            await self._blocking(lambda: self._worker.prove(name))
        except FrazilError as error:
            self._failed(name, error)

    async def _look_after(self, name: str, is_behind: Callable[[], bool]) -> None:
        """Do what the table needs; a step that fails is left for the next look."""
        try:
            _, health, state = await self._blocking(lambda: self._examine(name))
            sought_at = state.orphans_sought_at or _NEVER
            steps = plan_maintenance(
                health,
                self._settings,
                snapshot_budget=self._snapshot_budget,
                now=datetime.now(UTC),
                orphans_sought_at=sought_at,
                retention_applied_at=state.retention_applied_at or _NEVER,
            )
        except NotFound:
            return  # dropped meanwhile
        except FrazilError as error:
            self._failed(name, error)
            return
        for step in steps:
            if is_behind() or name in self.held:
                return
            try:
                await self._do(step, is_behind)
            except FrazilError as error:
                self._failed(name, error)

    async def _serve(self, job: Job, is_behind: Callable[[], bool]) -> None:
        """Do what was asked, and answer. A pipeline that dies before the answer leaves the job to its successor."""
        try:
            result: dict[str, Any] = {"state": "done", "steps": await self._asked(job, is_behind)}
        except FrazilError as error:
            self._failed(job.subject, error)
            result = {"state": "failed", **error.body()}
        except Py4JNetworkError:
            raise
        except Exception as error:
            log.exception("maintenance of %s failed", job.subject)
            told = FrazilError(f"{type(error).__name__}: {str(error)[:200]}", hint="the pipeline's log tells more")
            result = {"state": "failed", **told.body()}
        await self._blocking(lambda: finish_job(self._lake.registry, job, result))

    async def _asked(self, job: Job, is_behind: Callable[[], bool]) -> list[dict[str, Any]]:
        for attempt in range(_TRIES):
            while is_behind():
                await asyncio.sleep(_WATCH_SECONDS)
            try:
                table, health, _ = await self._blocking(lambda: self._examine(job.subject))
                steps = requested_steps(
                    str(job.params.get("what")),
                    table.spec,
                    health,
                    self._settings,
                    snapshot_budget=self._snapshot_budget,
                    now=datetime.now(UTC),
                    sort=tuple(job.params.get("sort") or ()),
                    all_snapshots=bool(job.params.get("all_snapshots")),
                )
                return [(await self._do(step, is_behind)).body() for step in steps]
            except Unavailable:
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _do(self, step: MaintenanceStep, is_behind: Callable[[], bool]) -> Done:
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._worker.run, step)
        try:
            while not (await asyncio.wait({running}, timeout=_WATCH_SECONDS))[0]:
                if is_behind():
                    await asyncio.to_thread(self._worker.give_up)
        except asyncio.CancelledError:
            self._worker.give_up()
            raise
        done = running.result()
        self._note("maintenance", **{**done.body(), "table": step.table})
        await self._blocking(lambda: self._remember(step))
        return done

    def _failed(self, name: str, error: FrazilError) -> None:
        log.log(logging.ERROR if isinstance(error, DataLoss) else logging.WARNING, "maintenance: %s", error)
        if isinstance(error, DataLoss):
            self.held.add(name)
        self._note("maintenance_failed", table=name, **error.body()["error"])

    def _examine(self, name: str) -> tuple[LakeTable, Health, LastRuns]:
        table = self._lake.table(name)
        state = last_runs_of(self._lake.registry, table.uuid)
        health = health_of(table, small_below=small_below(self._settings), compacted_at=state.compacted_at)
        return table, health, state

    def _remember(self, step: MaintenanceStep) -> None:
        fields = {
            "compact": "compacted_at",
            "remove_orphans": "orphans_sought_at",
            "retention": "retention_applied_at",
        }
        if step.what not in fields:
            return
        uuid = self._lake.table(step.table).uuid
        state = last_runs_of(self._lake.registry, uuid)
        remember_upkeep(self._lake.registry, uuid, replace(state, **{fields[step.what]: datetime.now(UTC)}))

    async def _blocking(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
