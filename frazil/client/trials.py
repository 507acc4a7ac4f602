"""The trial half of a client: indexes and models measured on a table, and the best of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path


class Trials(Jobs):
    def trial(
        self,
        table: str,
        *,
        timeout_s: float = 7200.0,
        tell: Callable[[dict[str, Any]], None] | None = None,
        **wanted: Any,
    ) -> dict[str, Any]:
        """Have indexes tried on the table's vectors, and wait for the report; it goes on when the time is over.

        `wanted` are `kinds`, `grid` or `search` and `seed`; `k`, `queries` or an `eval_set`; `rule`, `profile`,
        `model`, `max_vectors`, `limit_seconds`, `trial_seconds`; or `models`, to compare those.
        """
        body = {name: value for name, value in wanted.items() if value is not None}
        asked = self._call("POST", f"{table_path(table)}/trials", json_body=body, again=False)
        return self.wait_for_job(asked["id"], timeout_s=timeout_s, tell=tell)

    def trials(self, table: str, *, run: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """What was measured, newest first."""
        params: dict[str, Any] = {"limit": limit} | ({"run": run} if run else {})
        found: list[dict[str, Any]] = self._call("GET", f"{table_path(table)}/trials", params=params)["trials"]
        return found

    def best_trial(self, table: str, *, promote: bool = False, **wanted: Any) -> dict[str, Any]:
        """The winner under `rule`, or `recall` and `by`; with `promote` the table's next build takes its index."""
        body = {name: value for name, value in wanted.items() if value is not None} | {"promote": promote}
        return self._call("POST", f"{table_path(table)}/trials/best", json_body=body)

    def forget_best(self, table: str, *, profile: str | None = None, model: str | None = None) -> dict[str, Any]:
        """Back to the index that follows the size of the data."""
        params = {name: value for name, value in (("profile", profile), ("model", model)) if value is not None}
        return self._call("DELETE", f"{table_path(table)}/trials/best", params=params or None, again=False)
