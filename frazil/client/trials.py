"""Trials: indexes and models measured on a table, and the best of them."""

from __future__ import annotations

from typing import Any

from frazil.client.jobs import JobsClient, OnProgress
from frazil.client.transport import JsonObject, JsonObjects, Transport, given, table_path


class TrialsClient:
    """Trials of tables. Calling it is the same as `list`."""

    def __init__(self, transport: Transport, jobs: JobsClient) -> None:
        self._transport = transport
        self._jobs = jobs

    def run(
        self,
        table: str,
        *,
        timeout_s: float = 7200.0,
        on_progress: OnProgress | None = None,
        **request: Any,
    ) -> JsonObject:
        """Measure indexes on the vectors of the table, and wait for the report.

        `request` has `kinds`, `grid` or `search` and `seed`; `k`, `queries` or an `eval_set`; `rule`, `profile`,
        `model`, `max_vectors`, `limit_seconds`, `trial_seconds`; or `models`, to compare models.
        """
        return self._jobs.run("trial", given(**request), table=table, timeout_s=timeout_s, on_progress=on_progress)

    def best(self, table: str, *, promote: bool = False, **rule: Any) -> JsonObject:
        """The winner under `rule`, or `recall` and `by`; with `promote` the next build of the table uses its index."""
        body = given(**rule) | {"promote": promote}
        return self._transport.call("POST", f"{table_path(table)}/trials/best", json_body=body)

    def forget_best(self, table: str, *, profile: str | None = None, model: str | None = None) -> JsonObject:
        """Return to the default index, which depends on the size of the data."""
        params = given(profile=profile, model=model)
        return self._transport.call("DELETE", f"{table_path(table)}/trials/best", params=params or None, again=False)

    def list(self, table: str, *, run: str | None = None, limit: int = 1000) -> JsonObjects:
        """The measurements, newest first."""
        params: dict[str, Any] = {"limit": limit} | ({"run": run} if run else {})
        found: JsonObjects = self._transport.call("GET", f"{table_path(table)}/trials", params=params)["trials"]
        return found

    __call__ = list
