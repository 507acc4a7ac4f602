"""Freshness tokens of one client: merged, and remembered so that a client reads its own writes."""

from __future__ import annotations

import threading


def merge_tokens(first: str, second: str) -> str:
    """The token that is reached when both are."""
    if not first or first == second:
        return second
    from frazil.events import Token

    return str(Token.parse(first).merge(Token.parse(second)))


class SeenToken:
    """The token of everything that a client wrote and read. Threads may share it."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._token = ""
        self._lock = threading.Lock()

    def add(self, token: str) -> None:
        if self._enabled and token:
            with self._lock:
                self._token = merge_tokens(self._token, token)

    def min_token(self, requested: str | None) -> str | None:
        """The least token that the next answer must reach: the requested one and everything seen before."""
        with self._lock:
            seen = self._token
        return merge_tokens(seen, requested) if seen and requested else requested or seen or None
