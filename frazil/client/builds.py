"""The building half of a client: artifacts of a table, to answer searches from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path


class Builds(Jobs):
    def build(
        self,
        table: str,
        *,
        profile: str | None = None,
        force: bool = False,
        timeout_s: float = 3600.0,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Have an artifact built of the table as it is, and wait for the report; it goes on when the time is over.

        What is not embedded yet is embedded first. Nothing is built (`built` is false) where nothing has changed,
        unless with `force`. With `profile`, what that profile is answered from.
        """
        wanted: dict[str, Any] = {"force": force} | ({"profile": profile} if profile is not None else {})
        asked = self._call("POST", f"{table_path(table)}/build", json_body=wanted, again=False)
        deadline = time.monotonic() + timeout_s
        told = self.wait_for_job(asked["id"], timeout_s=timeout_s, tell=tell)
        # One that waits long for its vectors lets others go first, and another one continues it.
        while following := told.get("continued_by"):
            told = self.wait_for_job(following, timeout_s=max(0.0, deadline - time.monotonic()), tell=tell)
        return told
