"""Comparison of models: known documents are searched by a sentence of theirs, over the vectors of each model.

The search is exact, so that only the model is judged. A document counts at its best chunk.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from frazil.embedding import ModelSpec, embedded, open_model
from frazil.registry import ProgressCallback
from frazil.requests import EvalQuestion
from frazil.serving.trials.eval_set import embedded_questions, hit_rate, mean_reciprocal_rank, ranks
from frazil.serving.trials.measure import VECTORS
from frazil.serving.vectors.brute_force import nearest_by_brute_force
from frazil.serving.vectors.exact_search import Floats

# A long document has many chunks: so many are looked at for each document that is wanted.
_CHUNKS_PER_DOCUMENT = 8
# A provider may want to be paid for each.
_TIMED = 10


@dataclass(frozen=True)
class Compared:
    hit_rate: float | None
    mrr: float | None
    queries: int
    left_out: dict[str, int]
    p50_ms: float
    """Of embedding one query."""


@dataclass(frozen=True)
class Compare:
    """All questions to one model; those that it has no vector for are misses."""

    folder: Path
    documents: tuple[str, ...]
    questions: tuple[EvalQuestion, ...]
    model: ModelSpec | None
    version: str
    k: int

    def run(self, report_progress: ProgressCallback | None = None) -> Compared:
        vectors: Floats = np.load(self.folder / VECTORS, mmap_mode="r")
        kept, queries, left_out = embedded_questions(self.questions, self.model, vectors.shape[1], self.version)
        _, found = nearest_by_brute_force(vectors, queries, min(len(vectors), self.k * _CHUNKS_PER_DOCUMENT))
        expected = [self.questions[number].expected for number in kept.tolist()]
        places = [place if place <= self.k else 0 for place in ranks(found, self.documents, expected)]
        places += [0] * (sum(bool(question.expected) for question in self.questions) - len(places))
        return Compared(
            hit_rate(places), mean_reciprocal_rank(places), len(self.questions), left_out, self._milliseconds()
        )

    def _milliseconds(self) -> float:
        texts = [question.text for question in self.questions if question.text][:_TIMED]
        if self.model is None or not texts:
            return 0.0
        model = open_model(self.model)
        taken = []
        for text in texts:
            began = time.perf_counter()
            embedded(model, [text])
            taken.append((time.perf_counter() - began) * 1000)
        return float(np.median(taken))
