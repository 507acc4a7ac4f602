"""Texts in requests: what no engine takes as text."""

from __future__ import annotations


def is_plain(text: str) -> bool:
    """Whether a text has no NUL and no half of a character."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
