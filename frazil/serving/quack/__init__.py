"""Quack: an artifact served to other DuckDB processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.quack.served_artifact import QuackOfTable as QuackOfTable

__getattr__, __all__ = lazy_door(__name__)
