"""Search over what is loaded: rankings, and one made of several."""

from __future__ import annotations

from frazil.serving.search.fusion import Ranking, fuse

__all__ = ["Ranking", "fuse"]
