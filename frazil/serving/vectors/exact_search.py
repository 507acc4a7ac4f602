"""Exact search: inner products with float32 vectors, wherever they lie, a mapped file included.

faiss does the arithmetic on the rows in place. A gather and a product by numpy takes three to eight times as long, and
its thread pool stalls when other threads want the cores (18 ms where one thread takes 1.6 [20,000 × 256, busy cores]).
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.vectors.faiss_library import faiss

Floats = npt.NDArray[np.float32]
# Up to here sorting takes no longer than choosing what to sort.
_FEW = 512


_THREADS = threading.local()


def one_thread() -> None:
    """Let faiss work in the calling thread only; it counts per thread, so each thread sets it once.

    Queries come from many threads at once, and then the helpers of one only wait for the cores of the other.
    """
    if not getattr(_THREADS, "is_one", False):
        faiss.omp_set_num_threads(1)
        _THREADS.is_one = True


def products(vectors: Floats, ordinals: Ordinals, query: Floats) -> Floats:
    """The score of each of these rows for one query."""
    scores = np.empty(len(ordinals), dtype=np.float32)
    if len(ordinals):
        faiss.fvec_inner_products_by_idx(
            faiss.swig_ptr(scores),
            faiss.swig_ptr(query),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(ordinals),
            vectors.shape[1],
            1,
            len(ordinals),
        )
    return scores


def best(scores: Floats, ordinals: Ordinals, k: int) -> tuple[Floats, Ordinals]:
    """The k best, best first; of equals, the lower ordinal first."""
    if k < len(scores) and len(scores) > _FEW:
        # All that tie with the last place stay in, so that the ordinal decides among them.
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        near = np.flatnonzero(scores >= last)
        scores, ordinals = scores[near], ordinals[near]
    order = np.lexsort((ordinals, -scores))[:k]
    return scores[order], ordinals[order]


def search_exactly(
    vectors: Floats, queries: Floats, k: int, *, allowed: Bitmap | None = None
) -> tuple[Floats, Ordinals]:
    """The true k best of each query, as (n, min(k, allowed)) scores and ordinals."""
    one_thread()
    if allowed is None:
        limit = min(k, len(vectors))
        if limit == 0:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        scores, ordinals = faiss.knn(queries, vectors, limit, metric=faiss.METRIC_INNER_PRODUCT)
        return scores, ordinals
    members = allowed.ordinals()
    limit = min(k, len(members))
    scores = np.empty((len(queries), limit), np.float32)
    ordinals = np.empty((len(queries), limit), np.int64)
    for at, query in enumerate(queries):
        scores[at], ordinals[at] = best(products(vectors, members, query), members, limit)
    return scores, ordinals
