"""Artifacts of a table: listed, verified, made current, rolled back."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from frazil.client.transport import JsonObject, Transport, given, table_path

_VERIFY_SECONDS = 3600.0


class ArtifactsClient:
    """The artifacts of tables. Calling it is the same as `list`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, table: str, generation: str, *, profile: str | None = None) -> JsonObject:
        """One artifact with its manifest and build report."""
        return self._transport.call("GET", _path(table, generation), params=given(profile=profile))

    def verify(self, table: str, generation: str, *, profile: str | None = None) -> JsonObject:
        """Download an artifact again and check every byte: `ok`, or `faults` with the reasons."""
        path = f"{_path(table, generation)}/verify"
        params = given(profile=profile)
        return self._transport.call("POST", path, params=params, timeout_s=_VERIFY_SECONDS, again=False)

    def swap(
        self, table: str, generation: str, *, back: bool = False, profile: str | None = None, wait_s: float = 30.0
    ) -> JsonObject:
        """Make an artifact the current one, and wait until all gateways serve it (`complete`).

        One that is older than the current one, or was rolled back, needs `back`.
        """
        params: dict[str, Any] = {**given(profile=profile), "wait_s": wait_s} | ({"back": "true"} if back else {})
        path = f"{_path(table, generation)}/promote"
        return self._transport.call("POST", path, params=params, timeout_s=wait_s + 30)

    def rollback(self, table: str, *, reason: str = "", profile: str | None = None, wait_s: float = 30.0) -> JsonObject:
        """Return to the previous artifact, and wait until all gateways serve it; the current one is withdrawn."""
        params: dict[str, Any] = {**given(profile=profile), "wait_s": wait_s} | ({"reason": reason} if reason else {})
        path = f"{table_path(table)}/artifacts/rollback"
        return self._transport.call("POST", path, params=params, timeout_s=wait_s + 30, again=False)

    def list(self, table: str, *, profile: str | None = None) -> JsonObject:
        """All artifacts of a table, the newest first: state, contents, and which gateway serves which."""
        return self._transport.call("GET", f"{table_path(table)}/artifacts", params=given(profile=profile))

    __call__ = list


def _path(table: str, generation: str) -> str:
    return f"{table_path(table)}/artifacts/{quote(generation, safe='')}"
