"""Profiles and chosen indexes: small documents of the registry, checked before they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import InvalidInput, NotFound
from frazil.lake.catalog import Lake
from frazil.serving import Profiles, forget_index, parse_profile
from frazil.serving.index_choice import choose_index, chosen_index
from frazil.serving.vectors.config import IndexConfig


def test_a_profile_is_kept_listed_and_deleted(lake: Lake) -> None:
    profiles = Profiles(lake.registry)
    fast = parse_profile("fast", {"table": "notes", "index": "flat", "k": 5, "columns": ["title"]})
    english = parse_profile("english", {"table": "a.notes", "filter": "lang = 'en'", "mode": "text"})
    profiles.put(fast)
    profiles.put(english)
    profiles.put(english)
    assert profiles.get("fast") == fast and profiles.list("a.notes") == [english]
    assert fast.shelf == "main.notes@fast" and english.shelf == "a.notes"
    assert parse_profile("fast", fast.body()) == fast
    profiles.delete("fast")
    with pytest.raises(NotFound):
        profiles.get("fast")
    with pytest.raises(NotFound):
        profiles.delete("fast")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("Fast", {"table": "notes"}),
        ("../x", {"table": "notes"}),
        ("fast", {}),
        ("fast", []),
        ("fast", {"table": "notes", "fliter": "x"}),
        ("fast", {"table": "notes", "name": "slow"}),
        ("fast", {"table": "notes", "model": "../etc"}),
        ("fast", {"table": "notes", "filter": " "}),
        ("fast", {"table": "notes", "filter": "x" * 10_001}),
        ("fast", {"table": "notes", "k": 0}),
        ("fast", {"table": "notes", "k": True}),
        ("fast", {"table": "notes", "mode": "magic"}),
        ("fast", {"table": "notes", "index": "magic"}),
        ("fast", {"table": "notes", "columns": "title"}),
        ("fast", {"table": "No table"}),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, body: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_profile(name, body)


def test_each_model_of_a_shelf_has_its_chosen_index(lake: Lake) -> None:
    registry = lake.registry
    assert chosen_index(registry, "main.notes", "wordllama") is None
    choose_index(registry, "main.notes", "wordllama", IndexConfig("hnsw"), "by hand")
    choose_index(registry, "main.notes", "minilm", IndexConfig("flat"), "by hand")
    choose_index(registry, "main.notes", "wordllama", IndexConfig("ivf", {"probes": 9}), "a trial")
    found = chosen_index(registry, "main.notes", "wordllama")
    assert found is not None and found.index == IndexConfig("ivf", {"probes": 9}) and found.because == "a trial"
    forget_index(registry, "main.notes", "wordllama")
    assert chosen_index(registry, "main.notes", "wordllama") is None
    assert chosen_index(registry, "main.notes", "minilm") is not None
