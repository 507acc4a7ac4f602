"""Turns of the interpreter are short while generations are swapped, and as before afterwards."""

from __future__ import annotations

import sys

import pytest

from frazil.serving.search.switch_interval import SHORT_SECONDS, short_switch_interval


def test_turns_are_short_until_the_last_swap_is_over() -> None:
    usual = sys.getswitchinterval()
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(min(usual, SHORT_SECONDS))
        with pytest.raises(ValueError, match="in the middle"), short_switch_interval():
            raise ValueError("in the middle")
        assert sys.getswitchinterval() == pytest.approx(min(usual, SHORT_SECONDS)), "another one still swaps"
    assert sys.getswitchinterval() == pytest.approx(usual)
