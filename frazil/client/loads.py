"""Loads: CSV files and Postgres sources into tables, and the list of past loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frazil.client.jobs import JobsClient
from frazil.client.transport import JsonObject, JsonObjects, Transport, given, table_path

_CHUNK_BYTES = 1 << 20


class LoadsClient:
    """Loads of tables. Calling it is the same as `list`."""

    def __init__(self, transport: Transport, jobs: JobsClient) -> None:
        self._transport = transport
        self._jobs = jobs

    def csv(self, table: str, files: Sequence[str | Path], **options: Any) -> JsonObject:
        """Submit a load of files that are on the machine of the pipeline. The answer has the `id` of the job.

        Options: mode, delimiter, quote, escape, header, encoding, null_words, columns, max_bad, source.
        """
        return self._jobs.submit(
            "csv", {"table": table, "files": [str(Path(file).absolute()) for file in files], **options}
        )

    def postgres(self, source: str, what: str = "archive", **options: Any) -> JsonObject:
        """Submit an archive or a refresh from a source of the server's settings. The answer has the `id` of the job.

        Options: tables, run_date, into, kind, cursor, overlap, nulls, key.
        """
        return self._jobs.submit("postgres", {"source": source, "what": what, **options})

    def upload_csv(self, table: str, file: str | Path, **options: Any) -> JsonObject:
        """Send a file and submit its load. The answer has the `id` of the job."""
        path = Path(file)
        params = {name: _parameter(value) for name, value in given(**options).items()}
        return self._transport.send_file(f"{table_path(table)}/loads", {"filename": path.name, **params}, _chunks(path))

    def list(self, table: str, *, limit: int = 100) -> JsonObjects:
        """The loads of a table, newest first: source, job, rows, snapshot and time."""
        answer = self._transport.call("GET", f"{table_path(table)}/loads", params={"limit": limit})
        found: JsonObjects = answer["loads"]
        return found

    __call__ = list


def _parameter(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else value


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
