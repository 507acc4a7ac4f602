"""Text ranges of a file that begin and end on record boundaries: tasks work on them side by side."""

from __future__ import annotations

import os
from dataclasses import dataclass

from frazil.errors import Conflict


@dataclass(frozen=True)
class FileMark:
    """Size, time and inode of a file: they change when somebody writes to it."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileMark:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True)
class CsvRange:
    """Whole records of a file in UTF-8. `line` is the physical line of the first byte, in the file as it was given."""

    path: str
    offset: int
    length: int
    line: int
    mark: FileMark
    source: str
    """The file that the user named; `path` is another one where its text had to be unpacked or decoded first."""
    unclosed: bool = False
    """Whether the file ends inside of quotes, and this range with it."""

    def read(self) -> bytes:
        """The bytes of this range, as they were when the file was scanned, or `Conflict`."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise changed(self.source) from error
        try:
            parts: list[bytes] = []
            offset, left = self.offset, self.length
            while left and (part := os.pread(descriptor, left, offset)):
                parts.append(part)
                offset, left = offset + len(part), left - len(part)
            # Looked at after the read: a write that came before or in between has left its mark by now.
            if left or FileMark.of(os.fstat(descriptor)) != self.mark:
                raise changed(self.source)
        finally:
            os.close(descriptor)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def changed(path: str) -> Conflict:
    return Conflict(
        f"{path} was changed while it was being loaded",
        code="file_changed",
        hint="load it again when its writer is done; nothing of it was published",
    )
