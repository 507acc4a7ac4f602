"""Entities: the fold of a history into its base table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.entities.fold_committer import Folder as Folder
    from frazil.pipeline.entities.fold_scheduler import Folding as Folding
    from frazil.pipeline.entities.fold_scheduler import FoldLimits as FoldLimits

__getattr__, __all__ = lazy_door(__name__)
