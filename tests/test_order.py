"""The lists of tests/order.py are of files that exist: one that was renamed would lose its place without a word."""

from __future__ import annotations

from pathlib import Path

from tests.order import HEAVY, LONG

ROOT = Path(__file__).parent.parent


def test_every_listed_file_exists_and_is_listed_once() -> None:
    listed = [*LONG, *HEAVY]
    assert [name for name in listed if not (ROOT / name).is_file()] == []
    assert len(set(listed)) == len(listed)
