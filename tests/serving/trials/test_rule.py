"""The rule picks what it says: held against a plain reading of it, over many made-up journals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidInput, NotFound
from frazil.serving.trials.rule import MEASURES, CurrentIndex, Rule, best
from frazil.serving.vectors.config import KINDS, IndexConfig
from tests.serving.trials.conftest import trial

NOW = CurrentIndex("main.notes", "wordllama", "1", 256, 1000)
CONFIGS: list[dict[str, Any]] = [
    {"kind": "flat"},
    *({"kind": "pq", "sub_dims": sub, "candidates": some} for sub in (2, 4) for some in (50, 100)),
    {"kind": "hnsw", "links": 32, "build_width": 100, "search_width": 64},
    {"kind": "vss", "links": 16, "build_width": 128, "search_width": 64},
]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def journals(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = []
    for number in range(draw(st.integers(0, 14))):
        config = draw(st.sampled_from(CONFIGS))
        rows.append(
            trial(
                trial=f"t{number}",
                tried_at=BEGAN + timedelta(minutes=number),
                kind=config["kind"],
                config=json.dumps(config),
                state=draw(st.sampled_from(["ok", "ok", "ok", "failed"])),
                model=draw(st.sampled_from(["wordllama", "wordllama", "minilm"])),
                dims=draw(st.sampled_from([256, 256, 384])),
                of_vectors=draw(st.sampled_from([499, 500, 1000, 2000, 2001])),
                machine=draw(st.sampled_from(['{"cpu": "a"}', '{"cpu": "a"}', '{"cpu": "b"}'])),
                recall=draw(st.sampled_from([0.5, 0.98, 0.99, 0.995, 1.0])),
                p50_ms=draw(st.sampled_from([0.1, 0.2, 0.5])),
                build_seconds=draw(st.sampled_from([0.1, 1.0])),
                memory_bytes=draw(st.sampled_from([1000, 2000])),
                size_bytes=draw(st.sampled_from([1000, 2000])),
            )
        )
    return rows


@given(journals(), st.sampled_from([0.5, 0.99, 1.0]), st.sampled_from(list(MEASURES)))
def test_the_winner_is_the_least_of_those_that_find_enough(rows: list[dict[str, Any]], recall: float, by: str) -> None:
    comparable = [
        row
        for row in rows
        if row["state"] == "ok" and row["model"] == "wordllama" and row["dims"] == 256
        if 500 <= row["of_vectors"] <= 2000
    ]
    here = [row for row in comparable if row["machine"] == comparable[-1]["machine"]]
    newest = {row["config"]: row for row in here}
    good = [row for row in newest.values() if row["recall"] >= recall and row["kind"] in KINDS]
    if not good:
        with pytest.raises(NotFound) as caught:
            best(rows, Rule(recall, by), NOW)
        assert caught.value.code == ("no_trial_qualifies" if newest else "no_trials")
        return
    won = best(rows, Rule(recall, by), NOW)
    assert won.trial in good and won.considered == len(newest)
    assert won.trial[MEASURES[by]] == min(row[MEASURES[by]] for row in good)
    assert isinstance(won.config.index, IndexConfig) and f"recall >= {recall:g}" in won.because


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("fastest with recall >= 0.99", Rule(0.99, "latency")),
        ("  Cheapest with recall ≥ .9 ", Rule(0.9, "latency")),
        ("quickest to build with recall>=1", Rule(1.0, "build")),
        ("lightest with recall >= 0.5", Rule(0.5, "memory")),
        ("smallest with recall >= 1.0", Rule(1.0, "size")),
    ],
)
def test_a_rule_is_read_from_a_sentence_and_said_again(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule == Rule.parse(str(rule))


@pytest.mark.parametrize(
    "text", ["", "best", "fastest", "fastest with recall > 0.9", "fastest with recall >= 1.5", "0.99"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Rule.parse(text)
    assert caught.value.code == "bad_trial" and "fastest with recall >= 0.99" in caught.value.hint


def test_a_sample_says_that_it_is_one() -> None:
    row = trial(
        trial="t",
        tried_at=BEGAN,
        kind="flat",
        config='{"kind": "flat"}',
        vectors=100,
        recall=1.0,
        p50_ms=0.1,
        build_seconds=0.0,
        memory_bytes=1,
        size_bytes=1,
    )
    assert "a sample of 1,000" in best([row], Rule(), NOW).because
