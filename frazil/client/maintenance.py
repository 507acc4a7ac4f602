"""Maintenance: the health of tables, and compaction, expiry, orphan removal and retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.client.jobs import JobsClient
from frazil.client.transport import JsonObject, JsonObjects, Transport, table_path


class MaintenanceClient:
    def __init__(self, transport: Transport, jobs: JobsClient) -> None:
        self._transport = transport
        self._jobs = jobs

    def table_health(self, name: str) -> JsonObject:
        """Files, small files, snapshots, metadata, the last compaction, and a verdict."""
        return self._transport.call("GET", f"{table_path(name)}/health")

    def tables_health(self) -> JsonObjects:
        """The same for all tables that the token may read."""
        found: JsonObjects = self._transport.call("GET", "/v1/health/tables")["tables"]
        return found

    def run(
        self,
        name: str,
        what: str,
        *,
        sort: Sequence[str] = (),
        dry_run: bool = False,
        all_snapshots: bool = False,
        at: str | None = None,
        timeout_s: float = 3600.0,
    ) -> JsonObject:
        """Run `compact`, `expire`, `rewrite_manifests`, `remove_orphans` or `retention`, and wait for the report.

        With `dry_run` the answer is only the plan, for retention also of another day `at`.
        """
        body: dict[str, Any] = {"what": what, "sort": list(sort), "dry_run": dry_run}
        body |= {"all_snapshots": True} if all_snapshots else {}
        body |= {"at": at} if at is not None else {}
        if dry_run:
            return self._transport.call("POST", f"{table_path(name)}/maintenance", json_body=body)
        return self._jobs.run("maintenance", body, table=name, timeout_s=timeout_s)
