"""The modules that tests/forks.py loads beforehand exist: one that was renamed would be left out without a word."""

from __future__ import annotations

from importlib.util import find_spec

from tests.forks import PRELOADED


def test_every_preloaded_module_exists() -> None:
    assert [name for name in PRELOADED if find_spec(name) is None] == []
