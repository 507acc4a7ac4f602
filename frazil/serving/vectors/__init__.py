"""Vector indexes: exact and approximate nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.vectors.brute_force import nearest_by_brute_force as nearest_by_brute_force
    from frazil.serving.vectors.config import default_config as default_config
    from frazil.serving.vectors.index_files import build as build

__getattr__, __all__ = lazy_door(__name__)
