"""Tests that tell what they drew; `tests/test_repeatable.py` runs them several times and compares."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

LOADS = "DRAWN_EXAMPLES_LOADS"
"""Modules to load while the examples are made."""
_drawn: list[tuple[str, int, float]] = []


@settings(max_examples=200, phases=[Phase.generate])
@given(st.text(max_size=8), st.integers(), st.floats())
def test_examples(text: str, number: int, other: float) -> None:
    for name in os.environ[LOADS].split():
        __import__(name)
    _drawn.append((text, number, other))


def test_what_was_drawn(random_seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(_drawn) >= 200
    with capsys.disabled():
        print(f"\nDRAWN {hash(repr(_drawn))} {random.Random(random_seed).random()} {random.random()}")
