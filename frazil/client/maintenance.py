"""The looking-after half of a client: how well kept the tables are, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path


class Upkeep(Jobs):
    def table_health(self, name: str) -> dict[str, Any]:
        """Files, small files, snapshots, metadata, the last compaction, and a verdict."""
        return self._call("GET", f"{table_path(name)}/health")

    def loads(self, name: str, *, limit: int = 100) -> list[dict[str, Any]]:
        """The bulk loads of a table, newest first: source, job, rows, snapshot, and when."""
        answer = self._call("GET", f"{table_path(name)}/loads", params={"limit": limit})
        found: list[dict[str, Any]] = answer["loads"]
        return found

    def tables_health(self) -> list[dict[str, Any]]:
        """The same of all tables that may be read."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/health/tables")["tables"]
        return found

    def maintain(
        self,
        name: str,
        what: str,
        *,
        sort: Sequence[str] = (),
        dry_run: bool = False,
        all_snapshots: bool = False,
        at: str | None = None,
        timeout_s: float = 3600.0,
    ) -> dict[str, Any]:
        """Have the pipeline `compact`, `expire`, `rewrite_manifests`, `remove_orphans` or apply `retention`, and wait.

        With `dry_run` only the plan comes back, of retention also for another day `at`. The work goes on when the time
        is over or the caller leaves.
        """
        wanted: dict[str, Any] = {"what": what, "sort": list(sort), "dry_run": dry_run}
        wanted |= {"all_snapshots": True} if all_snapshots else {}
        wanted |= {"at": at} if at is not None else {}
        asked = self._call("POST", f"{table_path(name)}/maintenance", json_body=wanted, again=dry_run)
        if dry_run:
            return asked
        return {"table": asked["table"], **self.wait_for_job(asked["id"], timeout_s=timeout_s)}
