"""Serving: SQL workers, vector and text indexes, artifacts, builds, trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.bitmap import Bitmap as Bitmap
    from frazil.serving.index_choice import forget_index as forget_index
    from frazil.serving.profiles import Profile as Profile
    from frazil.serving.profiles import Profiles as Profiles
    from frazil.serving.profiles import no_such_profile as no_such_profile
    from frazil.serving.profiles import parse_profile as parse_profile
    from frazil.serving.settings import SearchSettings as SearchSettings

__getattr__, __all__ = lazy_door(__name__)
