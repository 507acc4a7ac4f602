"""The loading half of a client: CSV files become rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path

_CHUNK_BYTES = 1 << 20


class Loads(Jobs):
    def load_csv(self, table: str, files: Sequence[str | Path], **options: Any) -> dict[str, Any]:
        """Ask for a load of files that the server itself can read. The answer has the `id` of the job.

        Options: mode, delimiter, quote, escape, header, encoding, null_words, columns, max_bad, source.
        """
        body = {"table": table, "files": [str(Path(file).absolute()) for file in files], **options}
        return self._call("POST", "/v1/loads/csv", json_body=body, again=False)

    def load_postgres(self, source: str, what: str = "archive", **options: Any) -> dict[str, Any]:
        """Ask for an archive or a refresh from a source that the server's settings name.

        Options: tables, run_date, into, kind, cursor, overlap, nulls, key.
        """
        return self._call(
            "POST", "/v1/loads/postgres", json_body={"source": source, "what": what, **options}, again=False
        )

    def upload_csv(self, table: str, file: str | Path, **options: Any) -> dict[str, Any]:
        """Send a file and ask for its load. The answer has the `id` of the job."""
        path = Path(file)
        given: Mapping[str, Any] = {name: _shown(value) for name, value in options.items() if value is not None}
        return self._send_file(f"{table_path(table)}/loads", {"filename": path.name, **given}, _chunks(path))


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else value


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
