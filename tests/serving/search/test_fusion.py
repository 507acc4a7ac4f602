"""Reciprocal rank fusion, by hand and by its promises."""

from __future__ import annotations

import random

import pytest

from frazil.errors import InvalidInput
from frazil.serving.search.fusion import Ranking, fuse


def test_by_hand() -> None:
    fused = fuse([Ranking(["a", "b", "c"]), Ranking(["c", "a", "d"])], 10)
    assert [hit for hit, _ in fused] == ["a", "c", "b", "d"]
    assert dict(fused)["a"] == pytest.approx(1 / 61 + 1 / 62)
    assert dict(fused)["d"] == pytest.approx(1 / 63)


def test_second_in_both_beats_first_in_one() -> None:
    assert fuse([Ranking(["x", "both"]), Ranking(["y", "both"])], 1)[0][0] == "both"


def test_weights_decide() -> None:
    rankings = [["a", "b"], ["b", "a"]]
    assert fuse([Ranking(rankings[0], 2.0), Ranking(rankings[1], 1.0)], 1)[0][0] == "a"
    assert fuse([Ranking(rankings[0], 1.0), Ranking(rankings[1], 2.0)], 1)[0][0] == "b"
    assert [hit for hit, _ in fuse([Ranking(["a"], 0.0), Ranking(["b"])], 5)] == ["b"]


def test_edges() -> None:
    nothing: list[Ranking[str]] = []
    assert fuse(nothing, 5) == []
    assert fuse([Ranking[str]([]), Ranking(["a"])], 5) == [("a", 1 / 61)]
    assert [hit for hit, _ in fuse([Ranking(["a", "b"]), Ranking(["b", "a"])], 5)] == ["a", "b"], (
        "equals keep their order"
    )
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            fuse([Ranking(["a"], wrong)], 5)


def test_one_ranking_stays_as_it_is_and_k_is_a_prefix() -> None:
    rng = random.Random(1)
    for _ in range(50):
        one, two = (rng.sample(range(40), 20) for _ in range(2))
        assert [hit for hit, _ in fuse([Ranking(one)], 20)] == one
        every = fuse([Ranking(one), Ranking(two, 0.5)], 99)
        assert {hit for hit, _ in every} == {*one, *two}
        assert fuse([Ranking(one), Ranking(two, 0.5)], 7) == every[:7]
