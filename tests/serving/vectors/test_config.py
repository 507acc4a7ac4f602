"""What an index may be told, and what fits how many vectors."""

from __future__ import annotations

import json

import pytest

from frazil.errors import InvalidInput
from frazil.serving.vectors import default_config
from frazil.serving.vectors.config import KINDS, IndexConfig


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_survives_json(kind: str) -> None:
    config = IndexConfig(kind)
    assert IndexConfig.parse(json.dumps(config.as_json())) == config
    assert IndexConfig.parse(config.as_json()) == config
    assert IndexConfig.parse(kind) == config


def test_given_parameters_count_and_the_others_have_defaults() -> None:
    config = IndexConfig.parse('{"kind": "ivf", "lists": 64}')
    assert config.params["lists"] == 64
    assert config.params["probes"] == IndexConfig("ivf").params["probes"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("tree", "neither a kind nor JSON"),
        ("[" * 10_000, "neither a kind nor JSON"),
        ("[]", "object with a `kind`"),
        ('{"kind": 3}', "object with a `kind`"),
        ('{"kind": "vss"}', "no index kind 'vss'"),
        ('{"kind": "flat", "lists": 3}', "no parameter 'lists'"),
        ('{"kind": "pq", "sub_dims": 0}', "from 1 to 16"),
        ('{"kind": "pq", "sub_dims": 2.5}', "whole number"),
        ('{"kind": "pq", "sub_dims": true}', "whole number"),
        ('{"kind": "pq", "sub_dims": null}', "whole number"),
    ],
)
def test_a_wrong_config_is_told_what_is_wrong(told: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        IndexConfig.parse(told)
    assert refused.value.code == "bad_index_config" and refused.value.hint


def test_the_default_follows_the_size() -> None:
    kinds = [default_config(rows, 768).kind for rows in (0, 1, 2_000, 10_000, 100_000, 5_000_000)]
    assert kinds == ["flat", "flat", "flat", "pq", "pq", "pq"]


def test_many_dimensions_get_coarser_codes() -> None:
    assert default_config(100_000, 768).params["sub_dims"] > default_config(100_000, 256).params["sub_dims"]
