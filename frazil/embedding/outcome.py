"""Outcome of embedding: every text becomes a vector or a failure with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from frazil.embedding.model import ExplainingModel, Model, NoVector, RawVectors, Vectors, unit

Indexes = npt.NDArray[np.int64]
BATCH = 64

WRONG_DIMENSION = "wrong_dimension"
NOT_FINITE = "not_finite"
NOT_NUMBERS = "not_numbers"
MISSING = "missing"
ZERO = "zero"
REFUSED = "refused"
"""The codes of failures; the first three and the last are the provider's doing, a zero is often an empty text."""


@dataclass(frozen=True)
class EmbeddingFailure:
    """One text without a vector: which, a code for programs, and a sentence for the quarantine."""

    index: int
    code: str
    reason: str


@dataclass(frozen=True)
class Embedded:
    """The vectors of `texts` texts, numbered from `first`: row i of `vectors` is that of the text `of[i]`."""

    first: int
    texts: int
    of: Indexes
    vectors: Vectors
    failed: tuple[EmbeddingFailure, ...] = ()

    def __post_init__(self) -> None:
        accounted = sorted([*self.of.tolist(), *(failure.index for failure in self.failed)])
        assert accounted == list(range(self.first, self.first + self.texts)), "texts in = vectors out + failed"
        assert len(self.vectors) == len(self.of)

    def reasons(self) -> dict[str, int]:
        """How many failed, by code."""
        return dict(Counter(failure.code for failure in self.failed))


def embedded(model: Model, texts: Sequence[str]) -> Embedded:
    """The vectors of all texts, checked: float32, finite, of length 1, `model.dims` wide.

    A model that does not answer at all raises `Unavailable`, one set up wrongly `Misconfigured`; then nothing is known
    of any text, and nothing belongs into quarantine.
    """
    parts = list(embedded_in_batches(model, texts, batch=max(1, len(texts))))
    return parts[0] if parts else Embedded(0, 0, np.empty(0, np.int64), np.empty((0, model.dims), np.float32))


def embedded_in_batches(model: Model, texts: Sequence[str], *, batch: int = BATCH) -> Iterator[Embedded]:
    """The same, a batch at a time: what was yielded before a model became unavailable is done and can be kept."""
    for first in range(0, len(texts), batch):
        batch_texts = list(texts[first : first + batch])
        answer = (
            model.answer(batch_texts) if isinstance(model, ExplainingModel) else RawVectors(model.embed(batch_texts))
        )
        yield checked(answer, len(batch_texts), model.dims, first=first)


def checked(answer: RawVectors, texts: int, dims: int, *, first: int = 0) -> Embedded:
    """What a model answered for so many texts, each row judged."""
    failed = dict(answer.failed)
    given: npt.NDArray[Any] = np.asarray(answer.vectors)
    if given.ndim != 2 or given.shape[1] != dims:
        wrong = NoVector(WRONG_DIMENSION, f"the model gave an array of shape {given.shape}, not ({texts}, {dims})")
        failed = {index: failed.get(index, wrong) for index in range(texts)}
        given = np.zeros((texts, dims), np.float32)
    for index in range(len(given), texts):
        failed.setdefault(index, NoVector(MISSING, "the model gave no vector for it"))
    rows = np.array([index for index in range(texts) if index not in failed], dtype=np.int64)
    vectors = unit(given[rows])
    good = np.ones(len(rows), dtype=bool)
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    for at in np.flatnonzero(~finite | ~vectors.any(axis=1)).tolist():
        good[at] = False
        failed[int(rows[at])] = (
            NoVector(ZERO, "it has no words that the model knows")
            if finite[at]
            else NoVector(NOT_FINITE, "its vector holds NaN or infinity")
        )
    failures = (
        EmbeddingFailure(first + index, why.code, why.reason) for index, why in sorted(failed.items()) if index < texts
    )
    return Embedded(first, texts, first + rows[good], vectors[good], tuple(failures))
