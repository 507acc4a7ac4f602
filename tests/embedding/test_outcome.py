"""Texts in = vectors out + failed, whatever a model answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.embedding import Embedded, RawVectors, checked, embedded, embedded_in_batches, unit
from frazil.embedding.model import NoVector
from frazil.embedding.outcome import EmbeddingFailure
from frazil.errors import Unavailable

DIMS = 4
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.sampled_from([0.0, 1.0, 1e-40, 3e38])
ROWS = st.lists(NUMBERS, min_size=DIMS, max_size=DIMS) | st.just([0.0] * DIMS)


@dataclass
class Odd:
    """A model that answers with whatever it was given."""

    rows: Any
    name: str = "odd"
    version: str = "1"
    dims: int = DIMS

    def embed(self, texts: Sequence[str]) -> Any:
        return self.rows


@given(st.integers(0, 12), st.lists(ROWS, max_size=14), st.sets(st.integers(0, 20)))
def test_every_text_is_accounted_for(texts: int, rows: list[list[float]], told: set[int]) -> None:
    given_rows = np.array(rows, dtype=np.float64).reshape(len(rows), DIMS)
    outcome = checked(RawVectors(given_rows, {index: NoVector("told", "so") for index in told}), texts, DIMS, first=7)
    assert len(outcome.of) + len(outcome.failed) == texts == outcome.texts
    assert sorted([*outcome.of, *(failure.index for failure in outcome.failed)]) == list(range(7, 7 + texts))
    assert sum(outcome.reasons().values()) == len(outcome.failed)
    assert outcome.vectors.dtype == np.float32 and np.isfinite(outcome.vectors).all()
    assert np.allclose(np.linalg.norm(outcome.vectors, axis=1), 1.0, atol=1e-5)
    for failure in outcome.failed:
        row = rows[failure.index - 7] if failure.index - 7 < len(rows) else None
        if failure.index - 7 in told:
            assert failure.code == "told"
        elif row is None:
            assert failure.code == "missing"
        else:
            assert failure.code == ("not_finite" if not np.isfinite(row).all() else "zero")


@pytest.mark.parametrize("rows", [np.zeros((2, DIMS + 1)), np.ones(2), np.ones((2, DIMS, 1)), np.ones((0, 9))])
def test_an_array_of_another_shape_fails_each_text(rows: Any) -> None:
    outcome = embedded(Odd(rows), ["a", "b"])
    assert outcome.reasons() == {"wrong_dimension": 2} and outcome.vectors.shape == (0, DIMS)


def test_more_rows_than_texts_are_no_vectors_of_anything() -> None:
    assert embedded(Odd(np.ones((5, DIMS))), ["a", "b"]).of.tolist() == [0, 1]


def test_no_texts_are_no_vectors() -> None:
    outcome = embedded(Odd(np.zeros((0, DIMS))), [])
    assert (outcome.texts, outcome.vectors.shape, outcome.failed) == (0, (0, DIMS), ())


def test_a_model_that_is_down_says_so() -> None:
    class Down(Odd):
        def embed(self, texts: Sequence[str]) -> Any:
            raise Unavailable("down")

    with pytest.raises(Unavailable):
        embedded(Down(None), ["a"])


def test_batches_are_numbered_through() -> None:
    class Ones(Odd):
        def embed(self, texts: Sequence[str]) -> Any:
            return np.array([[float(bool(text))] * DIMS for text in texts])

    parts = list(embedded_in_batches(Ones(None), ["a", "", "c", "d", ""], batch=2))
    assert [part.of.tolist() for part in parts] == [[0], [2, 3], []]
    assert [failure.index for part in parts for failure in part.failed] == [1, 4]


def test_an_outcome_that_loses_a_text_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="texts in"):
        Embedded(0, 2, np.array([0]), np.ones((1, DIMS), np.float32))
    with pytest.raises(AssertionError, match="texts in"):
        Embedded(0, 1, np.array([0]), np.ones((1, DIMS), np.float32), (EmbeddingFailure(0, "zero", "twice"),))


def test_scaling_knows_the_smallest_and_the_largest_numbers() -> None:
    vectors = unit(np.array([[1e-300, 0], [3e307, 4e307], [0, 0], [np.nan, 1], [np.inf, 1]]))
    assert vectors[:3].tolist() == [[1.0, 0.0], [pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
    assert not np.isfinite(vectors[3:]).all(axis=1).any()
    assert unit(np.zeros((0, 3))).shape == (0, 3)
