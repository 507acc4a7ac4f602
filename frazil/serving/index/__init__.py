"""Vector indexes: which kind, how to build one into a folder, and the nearest vectors from it, filtered or not."""

from __future__ import annotations

from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.index.config import KINDS, SEARCHED_WITH, IndexConfig, default_config
from frazil.serving.index.exact import Floats, search_exactly
from frazil.serving.index.files import BuildReport, build, open_index, searched_with
from frazil.serving.index.truth import brute_force, recall
from frazil.serving.index.vector_index import VectorIndex

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
