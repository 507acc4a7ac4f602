"""Search over what is loaded: one question over a generation and what is fresh, and the swap of generations.

    serving = Serving(searchable, copies)
    serving.swap(entry)                                   # a newer generation, verified, without a gap
    serving.apply(changes, upto)                          # what was written since, found at once
    found = serving.search(Ask("green tea", k=5))

The names below are imported when they are first used: their engines are not for those who only look at settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.serving.search.ask import Allowed, Ask, Found, Hit
    from frazil.serving.search.engine import search
    from frazil.serving.search.fresh import Change, Fresh, FreshFull, FreshGap, FreshView
    from frazil.serving.search.fusion import Ranking, fuse
    from frazil.serving.search.generation import Generation
    from frazil.serving.search.searchable import Searchable
    from frazil.serving.search.swap import Reading, Serving, ServingStatus, Swapped, Trouble

_HOMES = {
    "Allowed": "ask",
    "Ask": "ask",
    "Change": "fresh",
    "Found": "ask",
    "Fresh": "fresh",
    "FreshFull": "fresh",
    "FreshGap": "fresh",
    "FreshView": "fresh",
    "Generation": "generation",
    "Hit": "ask",
    "Ranking": "fusion",
    "Reading": "swap",
    "Searchable": "searchable",
    "Serving": "swap",
    "ServingStatus": "swap",
    "Swapped": "swap",
    "Trouble": "swap",
    "fuse": "fusion",
    "search": "engine",
}

__all__ = [
    "Allowed",
    "Ask",
    "Change",
    "Found",
    "Fresh",
    "FreshFull",
    "FreshGap",
    "FreshView",
    "Generation",
    "Hit",
    "Ranking",
    "Reading",
    "Searchable",
    "Serving",
    "ServingStatus",
    "Swapped",
    "Trouble",
    "fuse",
    "search",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
