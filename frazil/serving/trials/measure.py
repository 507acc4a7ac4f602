"""Measurement of one index, in two child processes: one builds it, one answers from it.

So the memory of the build is not counted as that of the search. Times are of a single thread on warm files, the queries
in random order, each alone, as in a search.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from frazil.registry import ProgressCallback
from frazil.serving.bitmap import Ordinals
from frazil.serving.trials.grid import VSS, TrialConfig
from frazil.serving.trials.host import peak_bytes, resident_bytes
from frazil.serving.vectors.brute_force import recall
from frazil.serving.vectors.exact_search import Floats
from frazil.serving.vectors.index_files import build, open_index, searched_with

VECTORS = "vectors.npy"
QUERIES = "queries.npy"
TRUE_SCORES = "true-scores.npy"
_WARMING = 20
_LEAST_SEARCHES = 1000
_SEARCH_SECONDS = 5.0
_SEED = 7


class Answering(Protocol):
    def search(self, query: Floats, k: int) -> Ordinals:
        """The ordinals of the k nearest that it finds."""


@dataclass(frozen=True)
class Built:
    config: TrialConfig
    """What was built: `flat` where there are too few vectors for the requested kind."""
    seconds: float
    index_bytes: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Build:
    """Build one index of the vectors in `place` into `folder`, which is new."""

    place: Path
    folder: Path
    config: TrialConfig
    threads: int

    def run(self, report_progress: ProgressCallback | None = None) -> Built:
        self.folder.mkdir()
        os.link(self.place / VECTORS, self.folder / VECTORS)
        if self.config.kind == VSS:
            from frazil.serving.trials.vss import build_vss, load_engine

            load_engine()
            before = resident_bytes()
            seconds, size = build_vss(self.config, self.folder / VECTORS, self.folder, threads=self.threads)
            # The vectors are in the database file once more.
            return Built(self.config, seconds, size, size, peak_bytes() - before)
        vectors = np.load(self.folder / VECTORS, mmap_mode="r")
        before = resident_bytes()
        report = build(self.config.index, vectors, self.folder, threads=self.threads)
        return Built(
            TrialConfig.of(report.config),
            report.seconds,
            report.bytes,
            report.bytes + report.vector_bytes,
            peak_bytes() - before,
        )


@dataclass(frozen=True)
class Searched:
    recall: float
    p50_ms: float
    p99_ms: float
    searches: int
    memory_bytes: int
    found: npt.NDArray[np.int64]
    """The ordinals for each query."""


@dataclass(frozen=True)
class MeasuredSearch:
    """Answer the queries in `place` from what was built in `built`, with these parameters."""

    place: Path
    built: Path
    config: TrialConfig
    k: int

    def run(self, report_progress: ProgressCallback | None = None) -> Searched:
        queries: Floats = np.load(self.place / QUERIES)
        truth: Floats = np.load(self.place / TRUE_SCORES)
        if self.config.kind == VSS:
            from frazil.serving.trials.vss import load_engine

            load_engine()
        before = resident_bytes()
        answering = self._opened()
        order = np.random.default_rng(_SEED).permutation(len(queries))
        for number in order[:_WARMING]:
            answering.search(queries[number], self.k)
        milliseconds: list[float] = []
        found = np.full((len(queries), truth.shape[1]), -1, dtype=np.int64)
        began = time.perf_counter()
        while True:
            for number in order:
                start = time.perf_counter()
                ordinals = answering.search(queries[number], self.k)
                milliseconds.append((time.perf_counter() - start) * 1000)
                found[number, : len(ordinals)] = ordinals
            if len(milliseconds) >= _LEAST_SEARCHES or time.perf_counter() - began > _SEARCH_SECONDS:
                break
        memory = resident_bytes() - before
        p50, p99 = np.percentile(milliseconds, [50, 99])
        return Searched(self._recall(queries, truth, found), float(p50), float(p99), len(milliseconds), memory, found)

    def _opened(self) -> Answering:
        if self.config.kind == VSS:
            from frazil.serving.trials.vss import open_vss

            return open_vss(self.config, self.built)
        folder = self.built / f"searched-{os.getpid()}"
        folder.mkdir()
        searched_with(self.built, self.config.index, folder)
        return _OfIndex(folder)

    def _recall(self, queries: Floats, truth: Floats, found: npt.NDArray[np.int64]) -> float:
        """By the scores of what was found, computed here: no engine judges itself."""
        vectors = np.load(self.built / VECTORS, mmap_mode="r")
        scores = np.full(found.shape, -np.inf, dtype=np.float32)
        for number, ordinals in enumerate(found):
            there = np.unique(ordinals[ordinals >= 0])
            scores[number, : len(there)] = vectors[there] @ queries[number]
        return recall(scores, truth)


class _OfIndex:
    def __init__(self, folder: Path) -> None:
        self._index = open_index(folder)

    def search(self, query: Floats, k: int) -> Ordinals:
        ordinals: Ordinals = self._index.search(query, k)[1][0]
        return ordinals
