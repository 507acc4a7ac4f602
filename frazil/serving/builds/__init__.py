"""Builds: artifacts made from tables in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.builds.build_trigger import BuildTrigger as BuildTrigger
    from frazil.serving.builds.handler import KEPT as KEPT
    from frazil.serving.builds.handler import BuildHandler as BuildHandler
    from frazil.serving.builds.handler import BuildServices as BuildServices
    from frazil.serving.builds.model_choice import model_of as model_of
    from frazil.serving.builds.model_choice import must_be_of as must_be_of

__getattr__, __all__ = lazy_door(__name__)
