"""Tables: declared, listed, altered, dropped and repaired; their snapshots, rows and changes over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from frazil.client.transport import JsonObject, JsonObjects, Transport, given, table_path


class TablesClient:
    """The tables of one frazil. Calling it is the same as `list`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, name: str) -> JsonObject:
        """The declaration of a table, and its state."""
        return self._transport.call("GET", table_path(name))

    def create(self, name: str, columns: Mapping[str, Any], **declaration: Any) -> JsonObject:
        """Declare a table; `declaration` are its other fields. The same declaration again changes nothing."""
        body = {"name": name, "columns": dict(columns), **declaration}
        return self._transport.call("POST", "/v1/tables", json_body=body)

    def alter(self, name: str, **changes: Any) -> JsonObject:
        """`add_columns={…}`, `widen={…}`, and other fields of a declaration: `text`, `search`, `description`, …"""
        return self._transport.call("PATCH", table_path(name), json_body=changes)

    def drop(self, name: str) -> JsonObject:
        """Hide the table from readers and writers; its data is kept."""
        return self._transport.call("DELETE", table_path(name), again=False)

    def undrop(self, name: str) -> JsonObject:
        """Restore a dropped table."""
        return self._transport.call("POST", f"{table_path(name)}/undrop", again=False)

    def purge(self, name: str, *, dry_run: bool = True) -> JsonObject:
        """Delete a dropped table permanently: its files and its stream. By default only list them."""
        params = {"purge": "true", "dry_run": "true" if dry_run else "false"}
        return self._transport.call("DELETE", table_path(name), params=params, again=dry_run)

    def repair(self, name: str, what: str, *, accept_loss: bool = False) -> JsonObject:
        """Carry out a repair that needs a decision; `what` is `bus` or `watermark`."""
        body = {"what": what, "accept_loss": accept_loss}
        return self._transport.call("POST", f"{table_path(name)}/repair", json_body=body, again=False)

    def history(self, table: str, *, limit: int | None = None) -> JsonObjects:
        """The snapshots that led to the current state of the table, newest first."""
        answer = self._transport.call("GET", f"{table_path(table)}/history", params=given(limit=limit))
        snapshots: JsonObjects = answer["snapshots"]
        return snapshots

    def row_history(self, table: str, id: str) -> JsonObject:
        """Every version of the row of one event id, oldest first, uncommitted ones included."""
        return self._transport.call("GET", f"{table_path(table)}/rows/{quote(id, safe='')}/history")

    def key_history(self, table: str, **key: object) -> JsonObject:
        """Every event of one key of an entity, oldest first, also events that did not apply."""
        params = {"key": [f"{column}={value}" for column, value in key.items()]}
        return self._transport.call("GET", f"{table_path(table)}/rows", params=params)

    def changes(
        self, table: str, from_snapshot: int, to_snapshot: int | None = None, *, limit: int | None = None
    ) -> JsonObject:
        """The rows that were added and removed between two snapshots, by default up to the newest."""
        params = {"from": from_snapshot} | given(to=to_snapshot, limit=limit)
        return self._transport.call("GET", f"{table_path(table)}/changes", params=params)

    def export_hint(self, table: str) -> JsonObject:
        """Write a version hint for tools without a catalog; the answer shows how they open the table."""
        return self._transport.call("POST", f"{table_path(table)}/export-hint")

    def list(self, *, dropped: bool = False) -> JsonObjects:
        """All tables, or the dropped ones."""
        answer = self._transport.call("GET", "/v1/tables", params={"dropped": "true"} if dropped else None)
        found: JsonObjects = answer["tables"]
        return found

    __call__ = list
