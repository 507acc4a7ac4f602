"""Handler of maintenance jobs: the requested steps, also where the schedule is off."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from frazil.errors import FrazilError
from frazil.lake import MaintenanceSettings
from frazil.lake.maintenance import requested_steps
from frazil.pipeline.maintenance.steps import MaintenanceSteps
from frazil.registry import Job, ProgressCallback
from frazil.requests import MaintenanceRequest


class MaintenanceJobs:
    def __init__(self, steps: MaintenanceSteps, settings: MaintenanceSettings, *, snapshot_budget: int) -> None:
        self._steps = steps
        self._settings = settings
        self._snapshot_budget = snapshot_budget

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        """A step that lost against a commit, or that gave way, is tried again with those after it."""
        request = MaintenanceRequest.parse(job.params)
        try:
            table, health, _ = self._steps.examine(job.subject)
            steps = requested_steps(
                request.what,
                table.spec,
                health,
                self._settings,
                snapshot_budget=self._snapshot_budget,
                now=datetime.now(UTC),
                sort=request.sort,
                all_snapshots=request.all_snapshots,
            )
            return {"steps": [self._steps.run(step).body() for step in steps]}
        except FrazilError as error:
            self._steps.failed(job.subject, error)
            raise

    def cancel(self) -> None:
        self._steps.cancel()
