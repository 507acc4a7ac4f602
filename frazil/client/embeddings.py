"""Embeddings: the vectors of a table, per model."""

from __future__ import annotations

from urllib.parse import quote

from frazil.client.jobs import JobsClient, OnProgress
from frazil.client.transport import JsonObject, Transport, given, table_path


class EmbeddingsClient:
    def __init__(self, transport: Transport, jobs: JobsClient) -> None:
        self._transport = transport
        self._jobs = jobs

    def run(
        self,
        table: str,
        *,
        model: str | None = None,
        shadow: bool = False,
        retry: bool = False,
        sweep: bool = False,
        timeout_s: float = 3600.0,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """Embed the new rows of the table, and wait for the report.

        With `model` the table switches to that model when all its rows are embedded; with `shadow` it keeps its own.
        `retry` includes chunks that were refused before. `sweep` then removes vectors of chunks that no longer exist.
        """
        body = {"shadow": shadow, "retry": retry, "sweep": sweep, **given(model=model)}
        return self._jobs.run("embed", body, table=table, timeout_s=timeout_s, on_progress=on_progress)

    def models(self, table: str) -> JsonObject:
        """The model of the table, and every model that it has vectors of."""
        return self._transport.call("GET", f"{table_path(table)}/embeddings")

    def delete(self, table: str, model: str) -> JsonObject:
        """Delete the vectors of a model that is not the model of the table."""
        return self._transport.call("DELETE", f"{table_path(table)}/embeddings/{quote(model, safe='')}", again=False)
