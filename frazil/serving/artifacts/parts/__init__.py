"""Parts of an artifact: rows, vector index, text index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.artifacts.parts.duckdb_part import DUCKDB as DUCKDB
    from frazil.serving.artifacts.parts.duckdb_part import DuckPart as DuckPart
    from frazil.serving.artifacts.parts.part import ArtifactPart as ArtifactPart
    from frazil.serving.artifacts.parts.text_part import TextPart as TextPart
    from frazil.serving.artifacts.parts.vector_part import IndexPart as IndexPart

__getattr__, __all__ = lazy_door(__name__)
