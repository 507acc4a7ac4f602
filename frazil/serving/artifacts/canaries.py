"""Canaries of a vector index: stored vectors as queries, with their exact answers."""

from __future__ import annotations

import numpy as np

from frazil.serving.artifacts.manifest import Canary, Vectors

_BLOCK = 65_536
_CANARIES = 4
_CANDIDATES = 16
_DEPTH = 3
# Two scores this near to each other may change places between two machines.
_CLEAR = 1e-4


def nearest(vectors: Vectors, query: Vectors, k: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Vectors]:
    """The ordinals of the k best by inner product and their scores, best first, the lower ordinal first at a tie."""
    scores = np.concatenate([vectors[at : at + _BLOCK] @ query for at in range(0, len(vectors), _BLOCK)] or [query[:0]])
    order = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return order, scores[order]


def vector_canaries(part: str, vectors: Vectors, depth: int = _DEPTH) -> list[Canary]:
    """Stored vectors as questions, spread over all of them: the exact answers, as far down as no two are near a tie."""
    found: list[Canary] = []
    for ordinal in np.unique(np.linspace(0, len(vectors) - 1, _CANDIDATES).astype(int)) if len(vectors) else ():
        order, scores = nearest(vectors, vectors[ordinal], depth + 1)
        clear = 0
        while clear < min(depth, len(order)) and (
            clear + 1 == len(order) or scores[clear] - scores[clear + 1] > _CLEAR
        ):
            clear += 1
        if clear:
            found.append(Canary.of_vector(part, vectors[ordinal], tuple(int(number) for number in order[:clear])))
        if len(found) == _CANARIES:
            break
    return found
