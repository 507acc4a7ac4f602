"""Maintenance scheduler: every table is examined at an interval, and gets the steps that it needs.

It works in the lane of maintenance jobs, which gives way to commits. A step that gives way, or loses against a commit,
is simply planned again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from frazil.errors import FrazilError, NotFound
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake
from frazil.lake.maintenance import MaintenanceStep, plan_maintenance
from frazil.pipeline.jobs.lanes import Lane
from frazil.pipeline.maintenance.steps import MaintenanceSteps
from frazil.pipeline.periodic import run_every

_LOOK_SECONDS = 1.0
_NEVER = datetime.fromtimestamp(0, UTC)


class MaintenanceScheduler:
    def __init__(
        self,
        lake: Lake,
        steps: MaintenanceSteps,
        lane: Lane,
        settings: MaintenanceSettings,
        *,
        snapshot_budget: int,
    ) -> None:
        self._lake = lake
        self._steps = steps
        self._lane = lane
        self._settings = settings
        self._snapshot_budget = snapshot_budget
        self._looked_at: dict[str, float] = {}

    async def run(self, is_behind: Callable[[], bool]) -> None:
        """Maintain the tables until cancelled."""
        await run_every(_LOOK_SECONDS, partial(self._turn, is_behind), name="maintenance scheduler")

    async def _turn(self, is_behind: Callable[[], bool]) -> None:
        if not self._settings.enabled or is_behind():
            return
        for name in await asyncio.to_thread(self._lake.names):
            if name not in self._looked_at:
                self._looked_at[name] = time.monotonic()
                await self._in_lane(partial(self._steps.prove, name), is_behind)
            if time.monotonic() - self._looked_at[name] >= self._settings.interval_seconds and not is_behind():
                self._looked_at[name] = time.monotonic()
                await self._in_lane(partial(self._maintain, name, is_behind), is_behind)

    async def _in_lane(self, work: Callable[[], None], is_behind: Callable[[], bool]) -> None:
        await self._lane.run(work, cancel=self._steps.cancel, is_behind=is_behind)

    def _maintain(self, name: str, is_behind: Callable[[], bool]) -> None:
        """Do what the table needs; a step that fails is left for the next look."""
        try:
            planned = self._plan(name)
        except NotFound:
            return  # dropped meanwhile
        except FrazilError as error:
            self._steps.failed(name, error)
            return
        for step in planned:
            if is_behind() or name in self._steps.held:
                return
            try:
                self._steps.run(step)
            except FrazilError as error:
                self._steps.failed(name, error)

    def _plan(self, name: str) -> list[MaintenanceStep]:
        _, health, last_runs = self._steps.examine(name)
        return plan_maintenance(
            health,
            self._settings,
            snapshot_budget=self._snapshot_budget,
            now=datetime.now(UTC),
            orphans_sought_at=last_runs.orphans_sought_at or _NEVER,
            retention_applied_at=last_runs.retention_applied_at or _NEVER,
        )
