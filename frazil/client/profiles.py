"""Search profiles: named ways to search a table."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from frazil.client.transport import JsonObject, JsonObjects, Transport, given


class ProfilesClient:
    """The search profiles. Calling it is the same as `list`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, name: str) -> JsonObject:
        return self._transport.call("GET", _path(name))

    def set(self, name: str, table: str, **fields: Any) -> JsonObject:
        """Create or replace a profile: `model`, `index`, `filter`, `mode`, `k`, `columns`."""
        return self._transport.call("PUT", _path(name), json_body={"table": table, **given(**fields)})

    def delete(self, name: str) -> JsonObject:
        """Delete a profile, and the artifacts that only it used."""
        return self._transport.call("DELETE", _path(name), again=False)

    def list(self, table: str | None = None) -> JsonObjects:
        """The profiles of the tables that the token may read."""
        answer = self._transport.call("GET", "/v1/profiles", params={"table": table} if table else None)
        found: JsonObjects = answer["profiles"]
        return found

    __call__ = list


def _path(name: str) -> str:
    return f"/v1/profiles/{quote(name, safe='')}"
