"""Maintenance of tables, scheduled and run with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.maintenance.scheduler import MaintenanceScheduler as MaintenanceScheduler
    from frazil.pipeline.maintenance.spark_steps import SparkMaintenance as SparkMaintenance

__getattr__, __all__ = lazy_door(__name__)
