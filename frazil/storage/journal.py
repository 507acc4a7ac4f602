"""An append-only journal: one JSON object a line, in files of bounded size, readable with one call.

Entries are written with one `write` each, so that several threads and processes may share a journal and a kill leaves
at most one torn last line, which readers pass over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

MAX_FILE_BYTES = 8 << 20
MAX_FILES = 16


class Journal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)

    def append(self, kind: str, **entry: Any) -> None:
        """Add one entry. `kind` says what happened, the rest carries the correlation keys."""
        content = msgspec.json.encode({"at": datetime.now(UTC).isoformat(), "kind": kind, **entry})
        # A line end before it too: what a kill left half-written must not swallow this entry.
        line = b"\n" + content + b"\n"
        descriptor = os.open(self._writable(len(line)), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def read(self, *, limit: int = 100, **wanted: Any) -> list[dict[str, Any]]:
        """The newest entries, newest first, whose fields equal all of `wanted` (a None does not filter)."""
        filters = {name: value for name, value in wanted.items() if value is not None}
        found: list[dict[str, Any]] = []
        for entry in self._newest_first():
            if all(entry.get(name) == value for name, value in filters.items()):
                found.append(entry)
                if len(found) >= limit:
                    break
        return found

    def _newest_first(self) -> Iterator[dict[str, Any]]:
        for path in reversed(self._files()):
            try:
                lines = path.read_bytes().split(b"\n")
            except FileNotFoundError:
                continue  # a writer has dropped the oldest file since they were listed
            for line in reversed(lines):
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except msgspec.DecodeError:
                    continue

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.jsonl"))

    def _writable(self, size: int) -> Path:
        files = self._files()
        if files and files[-1].stat().st_size + size <= MAX_FILE_BYTES:
            return files[-1]
        for old in files[: -MAX_FILES + 1]:
            old.unlink(missing_ok=True)
        return self._folder / f"{time.time_ns():020d}.jsonl"
