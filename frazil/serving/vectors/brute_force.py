"""Brute force search: the right answer, and how much of it an index finds."""

from __future__ import annotations

import numpy as np

from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.vectors.exact_search import Floats

_AT_ONCE = 8192
# Two sums of the same products in another order differ by this much; such neighbours are equally right.
TIE = 1e-5


def nearest_by_brute_force(
    vectors: Floats, queries: Floats, k: int, *, allowed: Bitmap | None = None
) -> tuple[Floats, Ordinals]:
    """The k best of each query, as (n, min(k, allowed)) scores and ordinals.

    Plain numpy on purpose: what judges an index shares no code with it.
    """
    members = np.arange(len(vectors)) if allowed is None else allowed.ordinals()
    limit = min(k, len(members))
    scores = np.full((len(queries), 0), 0, dtype=np.float32)
    ordinals = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(members), _AT_ONCE):
        some = members[start : start + _AT_ONCE]
        scores = np.concatenate([scores, queries @ vectors[some].T], axis=1)
        ordinals = np.concatenate([ordinals, np.broadcast_to(some, (len(queries), len(some)))], axis=1)
        order = np.lexsort((ordinals, -scores), axis=1)[:, :limit]
        scores, ordinals = np.take_along_axis(scores, order, 1), np.take_along_axis(ordinals, order, 1)
    return scores, ordinals


def recall(found_scores: Floats, true_scores: Floats) -> float:
    """The share of the true answers that was found, 1.0 where there is nothing to find.

    Judged by score: where several chunks are equally near (the same text twice), any of them is right.
    """
    if true_scores.size == 0:
        return 1.0
    last = true_scores[:, -1:]
    right = (found_scores >= last - TIE).sum(axis=1)
    return float((np.minimum(right, true_scores.shape[1]) / true_scores.shape[1]).mean())
