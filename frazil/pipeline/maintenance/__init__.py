"""Maintenance of tables: planned at an interval or requested by a job, run with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.maintenance.handler import MaintenanceJobs as MaintenanceJobs
    from frazil.pipeline.maintenance.scheduler import MaintenanceScheduler as MaintenanceScheduler
    from frazil.pipeline.maintenance.spark_steps import SparkMaintenance as SparkMaintenance
    from frazil.pipeline.maintenance.steps import MaintenanceSteps as MaintenanceSteps

__getattr__, __all__ = lazy_door(__name__)
