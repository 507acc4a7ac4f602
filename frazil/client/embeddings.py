"""The embedding half of a client: vectors of a table, model by model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path

_SUMMED = ("rows", "chunks", "known", "reused", "embedded", "quarantined", "published", "seconds")


class Embeddings(Jobs):
    def embed(
        self,
        table: str,
        *,
        model: str | None = None,
        shadow: bool = False,
        retry: bool = False,
        sweep: bool = False,
        timeout_s: float = 3600.0,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Have what is new in the table embedded, and wait for the report; it goes on when the time is over.

        With `model` the table gets that model once all of it is embedded; with `shadow` it keeps its own. `retry` tries
        again what was refused before; `sweep` then takes away what is not of any chunk of today.
        """
        wanted: dict[str, Any] = {"shadow": shadow, "retry": retry, "sweep": sweep}
        wanted |= {"model": model} if model is not None else {}
        asked = self._call("POST", f"{table_path(table)}/embed", json_body=wanted, again=False)
        deadline = time.monotonic() + timeout_s
        told = self.wait_for_job(asked["id"], timeout_s=timeout_s, tell=tell)
        # A long run lets other jobs go first, and another one continues it.
        while following := told.get("continued_by"):
            rest = self.wait_for_job(following, timeout_s=max(0.0, deadline - time.monotonic()), tell=tell)
            told = {**rest, **{name: told[name] + rest[name] for name in _SUMMED}}
        return told

    def embedding_models(self, table: str) -> dict[str, Any]:
        """The model that the table is searched with, and all that it has vectors of."""
        return self._call("GET", f"{table_path(table)}/embeddings")

    def delete_embeddings(self, table: str, model: str) -> dict[str, Any]:
        """Delete the vectors of a model that the table is not searched with."""
        return self._call("DELETE", f"{table_path(table)}/embeddings/{quote(model, safe='')}", again=False)
