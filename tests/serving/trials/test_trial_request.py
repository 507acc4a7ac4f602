from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import InvalidInput
from frazil.requests import MAX_TRIALS, TrialRequest
from frazil.serving.trials import parse_trial
from frazil.serving.trials.grid import TrialConfig, default_grid, drawn, near, parse_grid
from frazil.serving.vectors import default_config
from frazil.serving.vectors.config import KINDS


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kinds": ["pq", "vss"], "k": 5, "queries": 20, "model": "minilm", "seed": 4},
        {"grid": [{"kind": "pq", "sub_dims": [2, 4]}, "flat"], "max_vectors": 5000, "limit_seconds": 60},
        {"search": 20, "rule": "smallest with recall >= 0.9"},
        {"models": ["wordllama", "minilm"]},
        {"eval_set": ["a text", {"text": "other", "expected": "n1"}, {"vector": [1, 2.5]}], "profile": "fast"},
    ],
)
def test_a_request_comes_out_of_its_job_as_it_went_in(body: dict[str, Any]) -> None:
    asked = parse_trial({"table": "notes", **body})
    assert isinstance(asked, TrialRequest) and parse_trial(asked.params()) == asked


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"kind": ["pq"]}, "kinds"),
        ({"kinds": ["annoy"]}, "annoy"),
        ({"kinds": "pq"}, "kinds"),
        ({"k": 0}, "`k`"),
        ({"k": True}, "`k`"),
        ({"queries": 5}, "queries"),
        ({"search": 10_000}, "search"),
        ({"limit_seconds": float("nan")}, "limit_seconds"),
        ({"models": ["one"]}, "models"),
        ({"models": ["a", "a"]}, "models"),
        ({"models": ["a", "b"], "kinds": ["pq"]}, "models"),
        ({"model": "Not A Name"}, "model"),
        ({"grid": []}, "grid"),
        ({"grid": [{"kind": "pq", "sub_dim": 2}]}, "sub_dim"),
        ({"grid": [{"kind": "pq", "sub_dims": 99}]}, "sub_dims"),
        ({"grid": [{"kind": "vss", "links": "many"}]}, "links"),
        ({"grid": [7]}, "kind"),
        ({"grid": ["flat"], "search": 3}, "grid"),
        ({"grid": [{"kind": "pq", "candidates": list(range(10, 10 + MAX_TRIALS + 1))}]}, "candidates"),
        ({"eval_set": []}, "eval_set"),
        ({"eval_set": [""]}, "query 0"),
        ({"eval_set": [{"text": "a", "vector": [1]}]}, "query 0"),
        ({"eval_set": ["a", {"vector": [1, "x"]}]}, "query 1"),
        ({"eval_set": [{"vector": [float("inf")]}]}, "query 0"),
        ({"eval_set": [{"text": "a", "expect": ["n1"]}]}, "expect"),
        ({"eval_set": ["x" * 2_000_000]}, "1 MB"),
        ({"rule": "the nicest"}, "rule"),
        ({"rule": 1}, "rule"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field_and_a_hint(body: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_trial({"table": "notes", **body})
    assert word in caught.value.message + caught.value.hint and caught.value.hint


def test_the_grid_follows_the_data_and_begins_with_its_default() -> None:
    for rows, dims in ((500, 256), (20_000, 256), (100_000, 768)):
        grid = default_grid(rows, dims)
        assert grid[0] == TrialConfig.of(default_config(rows, dims))
        assert {config.kind for config in grid} == {*KINDS, "vss"}
        assert len({config.text() for config in grid}) == len(grid)
    small, large = default_grid(1000, 256), default_grid(100_000, 768)
    slow = ("hnsw", "vss")
    assert sum(one.kind in slow for one in large) < sum(one.kind in slow for one in small)
    assert {config.kind for config in default_grid(100_000, 768, ("hnsw",))} == {"hnsw"}


def test_a_grid_is_every_combination_once() -> None:
    grid = parse_grid([{"kind": "pq", "sub_dims": [2, 4], "candidates": [50, 100]}, "flat", {"kind": "flat"}])
    assert [config.kind for config in grid] == ["pq"] * 4 + ["flat"]
    assert {(config.params["sub_dims"], config.params["candidates"]) for config in grid[:4]} == {
        (2, 50),
        (2, 100),
        (4, 50),
        (4, 100),
    }


def test_draws_are_valid_new_and_the_same_for_the_same_seed() -> None:
    tried: list[TrialConfig] = []
    for number in range(40):
        config = drawn(3, number, ("pq", "ivf", "hnsw", "vss"), tried)
        assert config is not None and config not in tried
        assert config == drawn(3, number, ("pq", "ivf", "hnsw", "vss"), tried)
        beside = near(3, number, config, [config])
        assert beside is not None and beside.kind == config.kind and beside != config
        for name, value in config.params.items():
            assert value / 3 <= beside.params[name] <= value * 3 or abs(value - beside.params[name]) <= 32
        tried.append(config)
    flat = TrialConfig("flat")
    assert drawn(3, 0, ("flat",), [flat]) is None and near(3, 0, flat, [flat]) is None
