"""Jobs: one runner, its order, Spark tasks, events sent by jobs, mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.jobs.event_sender import BusSender as BusSender
    from frazil.pipeline.jobs.lanes import Lane as Lane
    from frazil.pipeline.jobs.runner import JobHandler as JobHandler
    from frazil.pipeline.jobs.runner import JobRunner as JobRunner
    from frazil.pipeline.jobs.runner import JobTrigger as JobTrigger
    from frazil.pipeline.jobs.spark_tasks import EMBED as EMBED
    from frazil.pipeline.jobs.spark_tasks import SparkTasks as SparkTasks

__getattr__, __all__ = lazy_door(__name__)
