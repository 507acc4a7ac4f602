"""Fusion of rankings: one from several, by reciprocal ranks.

Scores of different searches cannot be compared (a cosine, a BM25), their ranks can. A hit is worth
weight / (60 + rank) in each ranking that has it, and the sum decides [Cormack, Clarke, Büttcher 2009].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from frazil.errors import InvalidInput

Hit = TypeVar("Hit")
# The published constant: high enough that second places in two rankings beat a first place in one.
RANK_CONSTANT = 60


@dataclass(frozen=True)
class Ranking(Generic[Hit]):
    """Different hits, best first, and how much this ranking counts."""

    hits: Sequence[Hit]
    weight: float = 1.0


def fuse(rankings: Sequence[Ranking[Hit]], k: int, *, constant: int = RANK_CONSTANT) -> list[tuple[Hit, float]]:
    """The k best hits of all rankings with their fused scores, best first.

    Of equals, the one that stands higher in the first ranking comes first, then in the second, and so on: the result
    depends on nothing but the rankings. A ranking of weight 0 adds no score, and no hits.
    """
    for ranking in rankings:
        if not 0 <= ranking.weight < float("inf"):
            raise InvalidInput(f"a weight of {ranking.weight}", code="bad_weights", hint="weights are 0 or more")
    counted = [ranking for ranking in rankings if ranking.weight > 0]
    scores: dict[Hit, float] = {}
    for ranking in counted:
        for rank, hit in enumerate(ranking.hits, start=1):
            scores[hit] = scores.get(hit, 0.0) + ranking.weight / (constant + rank)
    # A dictionary keeps the order of arrival, and the sort is stable.
    return sorted(scores.items(), key=lambda scored: -scored[1])[:k]
