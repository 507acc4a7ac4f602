"""Maintenance steps: each one run, noted in the journal and remembered, planned or requested."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from frazil.errors import DataLoss, FrazilError
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.maintenance import (
    Health,
    LastRuns,
    MaintenanceStep,
    health_of,
    last_runs_of,
    save_last_runs,
    small_below,
)
from frazil.pipeline.maintenance.spark_steps import Done

log = logging.getLogger(__name__)
_REMEMBERED = {
    "compact": "compacted_at",
    "remove_orphans": "orphans_sought_at",
    "retention": "retention_applied_at",
}


class MaintenanceWorker(Protocol):
    """Does a step in the thread that calls it."""

    def prove(self, name: str) -> object:
        """Raises `DataLoss` when a rewrite of the table changed its rows."""

    def run(self, step: MaintenanceStep) -> Done:
        """Raises `Unavailable` when a commit came first, or when it was cancelled."""

    def cancel(self) -> None:
        """Let the running step fail soon. Called by another thread."""


class MaintenanceSteps:
    """Blocking calls, made from the thread of one lane."""

    def __init__(
        self, lake: Lake, worker: MaintenanceWorker, settings: MaintenanceSettings, note: Callable[..., None]
    ) -> None:
        self._lake = lake
        self._worker = worker
        self._settings = settings
        self._note = note
        self.held: set[str] = set()
        """Tables whose rewrite failed its audit: their old files must stay until a person has looked."""

    def examine(self, name: str) -> tuple[LakeTable, Health, LastRuns]:
        table = self._lake.table(name)
        last_runs = last_runs_of(self._lake.registry, table.uuid)
        health = health_of(table, small_below=small_below(self._settings), compacted_at=last_runs.compacted_at)
        return table, health, last_runs

    def prove(self, name: str) -> None:
        """Compare what an earlier process died after, before its old files may go; a failure is noted."""
        try:
            self._worker.prove(name)
        except FrazilError as error:
            self.failed(name, error)

    def run(self, step: MaintenanceStep) -> Done:
        done = self._worker.run(step)
        self._note("maintenance", **{**done.body(), "table": step.table})
        if (field := _REMEMBERED.get(step.what)) is not None:
            uuid = self._lake.table(step.table).uuid
            last_runs = last_runs_of(self._lake.registry, uuid)
            save_last_runs(self._lake.registry, uuid, replace(last_runs, **{field: datetime.now(UTC)}))
        return done

    def cancel(self) -> None:
        self._worker.cancel()

    def failed(self, name: str, error: FrazilError) -> None:
        """Note the failure. A table whose rows it changed is held: nothing of it is removed any more."""
        log.log(
            logging.ERROR if isinstance(error, DataLoss) else logging.WARNING,
            "maintenance failed: %s",
            error,
            extra={"table": name},
        )
        if isinstance(error, DataLoss):
            self.held.add(name)
        self._note("maintenance_failed", table=name, **error.body()["error"])
