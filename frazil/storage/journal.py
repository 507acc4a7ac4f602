"""Journal: commits, failures and results of jobs, in an append log that keeps the newest files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.storage.append_log import AppendLog

MAX_FILE_BYTES = 8 << 20
MAX_FILES = 16


class Journal:
    """Several threads and processes may share the folder of a journal."""

    def __init__(self, folder: Path, *, max_file_bytes: int = MAX_FILE_BYTES, max_files: int = MAX_FILES) -> None:
        self._log = AppendLog(folder, max_file_bytes=max_file_bytes, max_files=max_files)

    def append(self, kind: str, **entry: Any) -> None:
        """Add one entry: what happened (`kind`), and its correlation keys. Raises `OSError` if it is not written."""
        self._log.append({"at": datetime.now(UTC).isoformat(), "kind": kind, **entry})

    def read(self, *, limit: int = 100, **wanted: Any) -> list[dict[str, Any]]:
        """The newest entries, newest first, whose fields equal all of `wanted` (a None does not filter)."""
        filters = {name: value for name, value in wanted.items() if value is not None}
        found: list[dict[str, Any]] = []
        for entry in self._log.newest_first():
            if all(entry.get(name) == value for name, value in filters.items()):
                found.append(entry)
                if len(found) >= limit:
                    break
        return found
