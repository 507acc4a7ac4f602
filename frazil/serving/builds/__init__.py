"""Builds: artifacts made from tables in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.builds.ask import KIND as KIND
    from frazil.serving.builds.ask import model_of as model_of
    from frazil.serving.builds.ask import must_be_of as must_be_of
    from frazil.serving.builds.ask import parse_build as parse_build
    from frazil.serving.builds.build_trigger import BuildTrigger as BuildTrigger
    from frazil.serving.builds.handler import KEPT as KEPT
    from frazil.serving.builds.handler import Builds as Builds
    from frazil.serving.builds.handler import BuildServices as BuildServices

__getattr__, __all__ = lazy_door(__name__)
