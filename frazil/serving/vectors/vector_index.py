"""Vector index, filtered or not: candidates by a finder, exact scores by the vectors themselves.

A filter never costs recall. Where few are allowed, all of them are compared exactly; otherwise the finder looks among
the allowed ones only. And the codes are not believed blindly: exact scores of the candidates show how far codes err,
for this query and this filter. Where something that was left out could still belong to the answer, more candidates are
looked at, and in the end everything. That takes one round for 99 of 100 queries of real text; with a filter that
forbids the nearer half of all vectors, recall@10 would be 0.13 without it.
"""

from __future__ import annotations

import math

import numpy as np

from frazil.errors import InvalidInput
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.vectors.candidate_finders import Finder
from frazil.serving.vectors.config import IndexConfig
from frazil.serving.vectors.exact_search import Floats, best, one_thread, products, search_exactly
from frazil.serving.vectors.vectors_file import check_queries

# Up to this share of the rows, comparing all that are allowed takes no longer than the codes do [100,000 × 768]:
# 0.12 ms at 1 %, 0.38 ms at 3 %, 1.05 ms at 5 %, against 0.6 to 1.2 ms.
EXACT_SHARE = 0.04
# A walk through a graph loses its way where few are allowed, long before it gets slow.
EXACT_SHARE_OF_GRAPHS = 0.1
# For how many answers the configured candidates are enough; who asks for more gets as many more.
_ANSWERS_FOR_CANDIDATES = 25
_LEAST_PER_ANSWER = 4
# By how many standard deviations of a code's error the best that was left out must miss the last place of the answer.
# Above 3.5, recall was 1.000 in every trial; between 2.5 and 3, it was 0.989 [20,000 × 768, × 256, 6,000 × 96].
_SURE = 3.5
_WIDER = 4
MAX_K = 10_000


class VectorIndex:
    """One index over the vectors of an artifact. Safe for several threads at once; the engine releases the GIL."""

    def __init__(self, config: IndexConfig, vectors: Floats, finder: Finder | None) -> None:
        self.config = config
        self._vectors = vectors
        self._finder = finder
        self._candidates = config.params.get("candidates", 0)
        self._exact_share = EXACT_SHARE_OF_GRAPHS if config.kind == "hnsw" else EXACT_SHARE

    @property
    def rows(self) -> int:
        return len(self._vectors)

    @property
    def dims(self) -> int:
        return int(self._vectors.shape[1])

    @property
    def vectors(self) -> Floats:
        """The mapped vectors; row i is that of ordinal i."""
        return self._vectors

    def search(self, query: Floats, k: int, *, allowed: Bitmap | None = None) -> tuple[Floats, Ordinals]:
        """The k nearest of each query, best first: scores and ordinals, both of shape (n, min(k, how many allowed)).

        Raises `InvalidInput` for a query of other dimensions or with numbers that are not finite.
        """
        queries = check_queries(query, self.dims)
        if not 0 < k <= MAX_K:
            raise InvalidInput(f"k = {k} is not from 1 to {MAX_K}", code="bad_k", hint="request fewer")
        if allowed is not None and allowed.size != self.rows:
            raise ValueError(f"the filter is over {allowed.size} ordinals, the index has {self.rows}")
        if allowed is not None and allowed.count == self.rows:
            allowed = None
        count = self.rows if allowed is None else allowed.count
        wanted = max(self._candidates, k * max(_LEAST_PER_ANSWER, self._candidates // _ANSWERS_FOR_CANDIDATES))
        if self._finder is None or count <= wanted or count <= self._exact_share * self.rows:
            return search_exactly(self._vectors, queries, k, allowed=allowed)
        one_thread()
        scores = np.empty((len(queries), k), np.float32)
        ordinals = np.empty((len(queries), k), np.int64)
        for at, row in enumerate(queries):
            scores[at], ordinals[at] = self._one(self._finder, row, k, wanted, allowed)
        return scores, ordinals

    def _one(
        self, finder: Finder, query: Floats, k: int, wanted: int, allowed: Bitmap | None
    ) -> tuple[Floats, Ordinals]:
        count = self.rows if allowed is None else allowed.count
        while wanted <= max(self._exact_share * count, 2 * self._candidates):
            candidates, by_code = finder.find(query, wanted, allowed)
            if len(candidates) < k:
                break
            exact = products(self._vectors, candidates, query)
            scores, ordinals = best(exact, candidates, k)
            if by_code is None or _complete(float(scores[-1]), exact, by_code):
                return scores, ordinals
            wanted *= _WIDER
        every_score, every_ordinal = search_exactly(self._vectors, query.reshape(1, -1), k, allowed=allowed)
        return every_score[0], every_ordinal[0]


def _complete(last: float, exact: Floats, by_code: Floats) -> bool:
    """Can nothing that was left out score above `last`, as far as codes err?"""
    error = exact - by_code
    error -= error.mean()
    # What `error.std()` is, in a third of its time: it is computed once for every query.
    return last - float(by_code.min()) >= _SURE * math.sqrt(float(error @ error) / len(error))
