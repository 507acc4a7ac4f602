"""In which order files are run: those that take minutes first, so that no worker is left alone with one at the end."""

from __future__ import annotations

import pytest

LONG = (
    "tests/flow/test_crash_points.py",
    "tests/flow/test_kills.py",
    "tests/flow/test_sources.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Keeps the order within a file."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))
