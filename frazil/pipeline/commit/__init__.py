"""Commit loop: batches of one stream read, judged, staged with Spark, published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.commit.committer import BatchLimits as BatchLimits
    from frazil.pipeline.commit.committer import Committer as Committer
    from frazil.pipeline.commit.target import SparkCommitTarget as SparkCommitTarget
    from frazil.pipeline.commit.target import warm_up as warm_up

__getattr__, __all__ = lazy_door(__name__)
