"""Vectors that users bring with their rows, checked as those of a model are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frazil.embedding.chunk_columns import Brought
from frazil.embedding.model import NoVector, RawVectors
from frazil.embedding.outcome import MISSING, NOT_FINITE, WRONG_DIMENSION, ZERO, Embedded, checked


def checked_vectors(brought: Sequence[Brought | None], dims: int) -> Embedded:
    """The vectors at length 1, and why the others are none. All vectors of a table have as many numbers."""
    failed = {index: why for index, vector in enumerate(brought) if (why := _failure(vector, dims)) is not None}
    numbers = np.zeros((len(brought), dims), np.float64)
    for index, vector in enumerate(brought):
        if index not in failed:
            numbers[index] = vector
    return checked(RawVectors(numbers, failed), len(brought), dims)


def dims_of(brought: Sequence[Brought | None]) -> int | None:
    """How many numbers the first vector has that is one."""
    return next(
        (len(vector) for vector in brought if vector is not None and _failure(vector, len(vector)) is None), None
    )


def _failure(vector: Brought | None, dims: int) -> NoVector | None:
    if vector is None or not len(vector):
        return NoVector(MISSING, "the row has no vector")
    if len(vector) != dims:
        return NoVector(WRONG_DIMENSION, f"the vector has {len(vector)} numbers, those of this table have {dims}")
    if not np.isfinite(vector).all():
        return NoVector(NOT_FINITE, "the vector holds null, NaN or infinity")
    return None if vector.any() else NoVector(ZERO, "the vector is all zeros")
