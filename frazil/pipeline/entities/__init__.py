"""Entities: the fold of a history into its base table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.entities.fold_committer import FoldCommitter as FoldCommitter
    from frazil.pipeline.entities.fold_scheduler import FoldLimits as FoldLimits
    from frazil.pipeline.entities.fold_scheduler import FoldScheduler as FoldScheduler

__getattr__, __all__ = lazy_door(__name__)
