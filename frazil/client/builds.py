"""Builds: artifacts of a table, for search."""

from __future__ import annotations

from frazil.client.jobs import JobsClient, OnProgress
from frazil.client.transport import JsonObject, given


class BuildsClient:
    def __init__(self, jobs: JobsClient) -> None:
        self._jobs = jobs

    def run(
        self,
        table: str,
        *,
        profile: str | None = None,
        force: bool = False,
        timeout_s: float = 3600.0,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """Build an artifact of the table as it is now, and wait for the report.

        Rows without vectors are embedded first. If nothing has changed, nothing is built (`built` is false), except
        with `force`. With `profile`, the artifact of that profile is built.
        """
        body = {"force": force, **given(profile=profile)}
        return self._jobs.run("build", body, table=table, timeout_s=timeout_s, on_progress=on_progress)
