"""Append log: JSON objects, one per line, in numbered files of bounded size.

Every entry is one `write` with O_APPEND, so threads and processes share a folder without locks between processes. A
kill or a full disk leaves at most one torn line. Every entry begins with a line end, so a torn line never joins the
next entry, and readers skip it. A kill during a rotation leaves a missing or an empty next file; the next append
creates or fills it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from frazil.crash import crash_point
from frazil.storage.fsync import sync_files


class AppendLog:
    """The entries of one folder. Files are for their owner only.

    - `max_files`: a rotation removes the oldest files above this number. None: files are never removed.
    - `daily`: names are `<day>-<number>`, counted from 0 each day (UTC). Otherwise a name is the time of creation.
    - `keep_open`: the file stays open between entries, because opening it takes longer than writing one. Then a process
      fills its file although another process has rotated, and the order of entries across files is not kept.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_file_bytes: int,
        max_files: int | None = None,
        daily: bool = False,
        keep_open: bool = False,
    ) -> None:
        self.folder = folder
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._daily = daily
        self._keep_open = keep_open
        self._series = ""
        self._number = 0
        self._descriptor: int | None = None
        self._writing = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def append(self, entry: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write one entry, and fsync it if `durable`. Raises `OSError` if it is not written whole."""
        line = b"\n" + msgspec.json.encode(entry) + b"\n"
        with self._writing:
            try:
                written = os.write(self._writable(len(line)), line)
                path = self._file(self._number)
            finally:
                if not self._keep_open:
                    self._close()
        if written != len(line):
            raise OSError("the entry was only partly written")
        crash_point("log_entry_written")
        if durable:
            sync_files([str(path)])  # outside of the lock: other entries do not wait for the disk

    def create_file(self) -> None:
        """Create the file of the next entry, for readers that need at least one file."""
        with self._writing:
            self._writable(0)
            self._close()

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """The entries, newest first. Torn lines are skipped."""
        for path in reversed(self._all_files()):
            try:
                lines = path.read_bytes().split(b"\n")
            except FileNotFoundError:
                continue  # a rotation has removed it since the listing
            for line in reversed(lines):
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except msgspec.DecodeError:
                    continue

    def close(self) -> None:
        with self._writing:
            self._close()

    def _all_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def _writable(self, size: int) -> int:
        """The open file for an entry of this size: of this day, with room for it, and not removed meanwhile."""
        series = f"{datetime.now(UTC):%Y-%m-%d}-" if self._daily else ""
        if series != self._series:
            self._close()
            self._series = series
        full: int | None = None
        while True:
            if self._descriptor is None:
                self._number = self._next_number(full)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._file(self._number), flags, 0o600)
                crash_point("log_file_opened")
            file = os.fstat(self._descriptor)
            # An entry that is larger than a file gets a file of its own.
            if file.st_nlink and (file.st_size + size <= self._max_file_bytes or not file.st_size):
                return self._descriptor
            self._close()
            full = self._number if file.st_nlink else None

    def _next_number(self, full: int | None) -> int:
        """The newest file, which another process may have created, or the one after it if the newest is `full`."""
        form = re.compile(rf"{self._series}(\d+)\.jsonl")
        numbers = sorted(int(found[1]) for path in self._all_files() if (found := form.fullmatch(path.name)))
        if numbers and numbers[-1] != full:
            return numbers[-1]
        if self._max_files is not None:
            for number in numbers[: max(0, len(numbers) - self._max_files + 1)]:
                self._file(number).unlink(missing_ok=True)
                crash_point("log_file_removed")
        following = numbers[-1] + 1 if numbers else 0
        # Not the time alone: after a step back of the clock, too, the new file must be the newest.
        return following if self._daily else max(following, time.time_ns())

    def _file(self, number: int) -> Path:
        return self.folder / f"{self._series}{number:0{4 if self._daily else 20}d}.jsonl"

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
