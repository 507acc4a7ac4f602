"""Text indexes: tokens, BM25, tantivy and fresh text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.text.layout import TextLayout as TextLayout

__getattr__, __all__ = lazy_door(__name__)
