"""Candidate finders: ordinals that are likely among the nearest, by codes or a graph. Exact scores decide later.

`pq` is one list of 4-bit codes, read from end to end. A list of one is what lets it take a selector: faiss refuses one
for the plain fast-scan index, and with it every filter that is not selective is answered at the speed of an unfiltered
query, with recall 1.00 at 90, 50, 10 and 1 % [100,000 × 768].
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.vectors.config import IndexConfig, lists_for
from frazil.serving.vectors.exact_search import Floats
from frazil.serving.vectors.faiss_library import faiss

_BITS = 4
# Codebooks of 16 entries over 2 dimensions learn little from more: 4096 vectors and 25 rounds took 4.1 s of a core,
# these take 0.9 s, and recall@10 stays at 1.00 [100,000 × 768].
_TRAINING_ROWS = 2048
_TRAINING_ROUNDS = 10
_ROWS_PER_LIST = 64
_ADDED_AT_ONCE = 16_384
_SEED = 20_260_101


class Finder(Protocol):
    """Safe for several threads at once."""

    def find(self, query: Floats, count: int, allowed: Bitmap | None) -> tuple[Ordinals, Floats | None]:
        """Up to `count` different candidates for one query, all of them allowed, in no particular order.

        With them their scores by the codes, if everything else that is allowed scores less by its code.
        """
        ...


class CodeFinder:
    """Of kind `pq` or `ivf`: product codes in one list or in many."""

    def __init__(self, index: Any, config: IndexConfig) -> None:
        self._index = index
        # It is only read: all queries share it.
        self._everything = faiss.SearchParametersIVF(nprobe=config.params.get("probes", 1))

    def find(self, query: Floats, count: int, allowed: Bitmap | None) -> tuple[Ordinals, Floats | None]:
        padded = _padded(query.reshape(1, -1), self._index.d)
        if allowed is None:
            how = self._everything
        else:
            # All lists: a filter may forbid just those that are near, and then the nearest that are left lie anywhere.
            selector = faiss.IDSelectorBitmap(allowed.packed)
            how = faiss.SearchParametersIVF(nprobe=self._index.nlist, sel=selector)
        scores, found = self._index.search(padded, count, params=how)
        there = found[0] >= 0
        return found[0][there], scores[0][there]


class GraphFinder:
    """Of kind `hnsw`: a graph over 8-bit vectors."""

    def __init__(self, index: Any, config: IndexConfig) -> None:
        self._index = index
        self._width = config.params["search_width"]

    def find(self, query: Floats, count: int, allowed: Bitmap | None) -> tuple[Ordinals, Floats | None]:
        if allowed is None:
            how = faiss.SearchParametersHNSW(efSearch=max(self._width, count))
        else:
            # The walk sees everything and keeps what is allowed: to keep as many, it must see more.
            width = int(np.ceil(max(self._width, count) / allowed.share))
            how = faiss.SearchParametersHNSW(efSearch=width, sel=faiss.IDSelectorBitmap(allowed.packed))
        found: Ordinals = self._index.search(query.reshape(1, -1), count, params=how)[1][0]
        return found[found >= 0], None


def train_and_fill(config: IndexConfig, vectors: Floats, *, threads: int) -> Any:
    """The faiss index of `pq`, `ivf` or `hnsw` over these vectors, in the order of their ordinals.

    Training is short and runs in one thread: its many small rounds spend their time waiting for each other as soon as
    anything else wants the cores (51 s instead of 1). Encoding and linking use them all.
    """
    faiss.omp_set_num_threads(1)
    try:
        index = _hnsw(config, vectors) if config.kind == "hnsw" else _codes(config, vectors, threads=threads)
        faiss.omp_set_num_threads(threads)
        for start in range(0, len(vectors), _ADDED_AT_ONCE):
            index.add(_padded(vectors[start : start + _ADDED_AT_ONCE], index.d))
    finally:
        faiss.omp_set_num_threads(1)
    return index


def _codes(config: IndexConfig, vectors: Floats, *, threads: int) -> Any:
    sub_dims = config.params["sub_dims"]
    codes = -(-vectors.shape[1] // sub_dims)
    dims = codes * sub_dims
    centres = _centres(config, vectors, dims, threads=threads)
    quantizer = faiss.IndexFlatIP(dims)
    quantizer.add(centres)
    index = faiss.IndexIVFPQFastScan(quantizer, dims, len(centres), codes, _BITS, faiss.METRIC_INNER_PRODUCT)
    quantizer.this.disown()
    index.own_fields = True
    index.by_residual = False
    index.pq.cp.niter = _TRAINING_ROUNDS
    index.train(_padded(_sample(vectors, _TRAINING_ROWS), dims))
    return index


def _centres(config: IndexConfig, vectors: Floats, dims: int, *, threads: int) -> Floats:
    """Where the lists are; the one list of `pq` is anywhere."""
    if config.kind == "pq":
        return np.zeros((1, dims), dtype=np.float32)
    lists = lists_for(config, len(vectors))
    rows = _padded(_sample(vectors, lists * _ROWS_PER_LIST), dims)
    faiss.omp_set_num_threads(threads)
    clustering = faiss.Kmeans(dims, lists, niter=_TRAINING_ROUNDS, spherical=True, seed=_SEED)
    clustering.train(rows)
    faiss.omp_set_num_threads(1)
    centres: Floats = clustering.centroids
    return centres


def _hnsw(config: IndexConfig, vectors: Floats) -> Any:
    index = faiss.IndexHNSWSQ(
        vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, config.params["links"], faiss.METRIC_INNER_PRODUCT
    )
    index.hnsw.efConstruction = config.params["build_width"]
    index.train(_sample(vectors, 65_536))
    return index


def _sample(vectors: Floats, rows: int) -> Floats:
    """The same rows each time: an artifact built twice from the same vectors is the same."""
    if len(vectors) <= rows:
        return np.ascontiguousarray(vectors)
    chosen = np.random.default_rng(_SEED).choice(len(vectors), rows, replace=False)
    return np.ascontiguousarray(vectors[np.sort(chosen)])


def _padded(vectors: Floats, dims: int) -> Floats:
    """With zeros up to `dims`, which no inner product notices."""
    missing = dims - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(vectors)
