"""Vector indexes: which kind, how to build one into a folder, and the nearest vectors from it, filtered or not.

The names below are imported when they are first used: whoever only reads or writes a configuration loads no engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.serving.bitmap import Bitmap, Ordinals
    from frazil.serving.index.config import KINDS, SEARCHED_WITH, IndexConfig, default_config
    from frazil.serving.index.exact import Floats, search_exactly
    from frazil.serving.index.files import BuildReport, build, open_index, searched_with
    from frazil.serving.index.truth import brute_force, recall
    from frazil.serving.index.vector_index import VectorIndex

_HOMES = {
    "KINDS": "index.config",
    "SEARCHED_WITH": "index.config",
    "Bitmap": "bitmap",
    "BuildReport": "index.files",
    "Floats": "index.exact",
    "IndexConfig": "index.config",
    "Ordinals": "bitmap",
    "VectorIndex": "index.vector_index",
    "brute_force": "index.truth",
    "build": "index.files",
    "default_config": "index.config",
    "open_index": "index.files",
    "recall": "index.truth",
    "search_exactly": "index.exact",
    "searched_with": "index.files",
}

__all__ = [
    "KINDS",
    "SEARCHED_WITH",
    "Bitmap",
    "BuildReport",
    "Floats",
    "IndexConfig",
    "Ordinals",
    "VectorIndex",
    "brute_force",
    "build",
    "default_config",
    "open_index",
    "recall",
    "search_exactly",
    "searched_with",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"frazil.serving.{_HOMES[name]}"), name)
