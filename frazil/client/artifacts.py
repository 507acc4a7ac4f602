"""The half of a client for those who look after searches: artifacts of a table, and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from frazil.client.sql import table_path
from frazil.client.transport import Transport

_VERIFY_SECONDS = 3600.0


class Artifacts(Transport):
    def artifacts(self, table: str, *, profile: str | None = None) -> dict[str, Any]:
        """All artifacts of a table, the newest first: state, contents, and who serves which."""
        return self._call("GET", f"{table_path(table)}/artifacts", params=_of(profile))

    def artifact(self, table: str, generation: str, *, profile: str | None = None) -> dict[str, Any]:
        """One artifact with its manifest and build report."""
        return self._call("GET", _path(table, generation), params=_of(profile))

    def verify_artifact(self, table: str, generation: str, *, profile: str | None = None) -> dict[str, Any]:
        """Have an artifact fetched anew and checked to the last byte; `ok`, or `faults` with the reasons."""
        path = f"{_path(table, generation)}/verify"
        return self._call("POST", path, params=_of(profile), timeout_s=_VERIFY_SECONDS, again=False)

    def swap_artifact(
        self, table: str, generation: str, *, back: bool = False, profile: str | None = None, wait_s: float = 30.0
    ) -> dict[str, Any]:
        """Make an artifact the current one, and wait until all gateways serve it (`complete`).

        One that is older than the current one, or was rolled back, needs `back`.
        """
        params = {**_of(profile), "wait_s": wait_s} | ({"back": "true"} if back else {})
        path = f"{_path(table, generation)}/promote"
        return self._call("POST", path, params=params, timeout_s=wait_s + 30)

    def rollback_artifact(
        self, table: str, *, reason: str = "", profile: str | None = None, wait_s: float = 30.0
    ) -> dict[str, Any]:
        """Go back to the previous artifact, and wait until all gateways serve it; the current one is withdrawn."""
        params = {**_of(profile), "wait_s": wait_s} | ({"reason": reason} if reason else {})
        path = f"{table_path(table)}/artifacts/rollback"
        return self._call("POST", path, params=params, timeout_s=wait_s + 30, again=False)

    def profiles(self, table: str | None = None) -> list[dict[str, Any]]:
        """The profiles of the tables that this token may read."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/profiles", params={"table": table} if table else None)[
            "profiles"
        ]
        return found

    def profile(self, name: str) -> dict[str, Any]:
        return self._call("GET", _profile(name))

    def set_profile(self, name: str, table: str, **fields: Any) -> dict[str, Any]:
        """Make a profile, or make it another: `model`, `index`, `filter`, `mode`, `k`, `columns`."""
        told: Mapping[str, Any] = {field: value for field, value in fields.items() if value is not None}
        return self._call("PUT", _profile(name), json_body={"table": table, **told})

    def delete_profile(self, name: str) -> dict[str, Any]:
        """Delete a profile, and the artifacts that only it had."""
        return self._call("DELETE", _profile(name), again=False)


def _path(table: str, generation: str) -> str:
    return f"{table_path(table)}/artifacts/{quote(generation, safe='')}"


def _profile(name: str) -> str:
    return f"/v1/profiles/{quote(name, safe='')}"


def _of(profile: str | None) -> dict[str, Any]:
    return {} if profile is None else {"profile": profile}
