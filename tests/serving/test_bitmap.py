"""Sets of ordinals, against Python's own sets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from frazil.serving import Bitmap
from tests.serving.bitmaps import bitmap_of


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1001])
def test_bitmaps_are_sets(size: int) -> None:
    rng = random.Random(size)
    for _ in range(20):
        one = {i for i in range(size) if rng.random() < 0.4}
        two = {i for i in range(size) if rng.random() < 0.4}
        a, b = bitmap_of(one, size), bitmap_of(two, size)
        for bitmap, members in (
            (a & b, one & two),
            (a | b, one | two),
            (a - b, one - two),
            (~a, set(range(size)) - one),
        ):
            assert set(bitmap.ordinals().tolist()) == members
            assert bitmap.count == len(members)
            assert {i for i in range(-2, size + 9) if i in bitmap} == members
            assert bitmap.holds(np.arange(size)).tolist() == [i in members for i in range(size)]
            assert bitmap == bitmap_of(members, size)


def test_full_and_empty() -> None:
    assert Bitmap.full(13).count == 13 and Bitmap.full(13).share == 1.0
    assert Bitmap.empty(13).count == 0 and (~Bitmap.empty(13)) == Bitmap.full(13)
    assert len(Bitmap.full(13).packed) == 2 and Bitmap.full(13).packed[1] == 0b11111


def test_bitmaps_of_different_artifacts_do_not_mix() -> None:
    with pytest.raises(ValueError, match="different artifacts"):
        Bitmap.full(8) & Bitmap.full(9)


def test_a_bitmap_does_not_change() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Bitmap.full(8).packed[0] = 0
