"""Maintenance of tables, scheduled and run with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.maintenance.scheduler import Upkeep as Upkeep
    from frazil.pipeline.maintenance.spark_steps import Maintenance as Maintenance

__getattr__, __all__ = lazy_door(__name__)
