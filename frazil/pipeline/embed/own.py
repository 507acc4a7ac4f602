"""Vectors that users bring with their rows: checked as those of a model are, and told in words that fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frazil.embedding.model import Answer, Failed
from frazil.embedding.outcome import MISSING, NOT_FINITE, WRONG_DIMENSION, ZERO, Embedded, checked

Brought = Sequence[float | None]


def checked_vectors(brought: Sequence[Brought | None], dims: int) -> Embedded:
    """The vectors at length 1, and why the others are none. All vectors of a table have as many numbers."""
    failed = {index: why for index, vector in enumerate(brought) if (why := _failure(vector, dims)) is not None}
    numbers = np.zeros((len(brought), dims), np.float64)
    for index, vector in enumerate(brought):
        if index not in failed:
            numbers[index] = vector
    return checked(Answer(numbers, failed), len(brought), dims)


def dims_of(brought: Sequence[Brought | None]) -> int | None:
    """How many numbers the first vector has that is one."""
    return next((len(vector) for vector in brought if vector and _failure(vector, len(vector)) is None), None)


def _failure(vector: Brought | None, dims: int) -> Failed | None:
    if not vector:
        return Failed(MISSING, "the row has no vector")
    if len(vector) != dims:
        return Failed(WRONG_DIMENSION, f"the vector has {len(vector)} numbers, those of this table have {dims}")
    if not all(number is not None and np.isfinite(number) for number in vector):
        return Failed(NOT_FINITE, "the vector holds null, NaN or infinity")
    return None if any(vector) else Failed(ZERO, "the vector is all zeros")
