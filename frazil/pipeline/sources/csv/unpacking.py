"""Unpacking limits: how far the packed files of a load may grow, stopped while they grow.

A packed file says nothing true about its size, so bytes are counted as they come out. A file may grow to
`max_ratio` times its packed size, and to `FREE_GROWTH_BYTES` whatever its ratio is; all files of a load to `max_bytes`;
and none further than the disk has room for. Loads are done one at a time, so what one load may take is also what one
caller may take of the disk at any moment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from frazil.errors import InvalidInput, TooLarge
from frazil.storage import translated_disk_errors

FREE_GROWTH_BYTES = 64 << 20
"""A small file of one repeated line is packed 1,000 to 1 and harms nobody."""
_LOOK_AT_DISK_BYTES = 16 << 20

_PACKED = (
    (re.compile(rb"\x1f\x8b"), "gzip"),
    # The three letters alone may begin a header; behind the digit is the magic of a block, or of the end.
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", re.DOTALL), "bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), "zstd"),
)
_NOT_READ = (
    (re.compile(rb"PK(\x03\x04|\x05\x06|\x07\x08)"), "a zip archive"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z archive"),
    (re.compile(rb"Rar!\x1a\x07"), "a rar archive"),
    (re.compile(rb"\xfd7zXZ\0"), "an xz file"),
    (re.compile(rb"\x04\x22\x4d\x18"), "an lz4 file"),
    (re.compile(rb"\x1f\x9d"), "a .Z file"),
    (re.compile(rb".{257}ustar", re.DOTALL), "a tar archive"),
    (re.compile(rb"PAR1"), "a Parquet file"),
)
MAGIC_BYTES = 512


@dataclass(frozen=True)
class UnpackLimits:
    max_bytes: int = 100 << 30
    max_ratio: int = 250
    min_free_bytes: int = 500_000_000


class UnpackBudget:
    """What the files of one load have grown to so far."""

    def __init__(self, limits: UnpackLimits | None = None) -> None:
        self.limits = limits or UnpackLimits()
        self._used = 0

    def file(self, name: str, packed_bytes: int) -> FileGrowth:
        """The growth of the next file. It counts for the load once it is `settled`: a second try begins at 0."""
        return FileGrowth(self, name, packed_bytes)

    def settle(self, size: int) -> None:
        self._used += size

    def check(self, size: int, name: str) -> None:
        if self._used + size > self.limits.max_bytes:
            raise TooLarge(
                f"the files of this load have more than {self.limits.max_bytes:,} bytes when unpacked; "
                f"{name} is where the limit was passed",
                code="unpacked_too_large",
                hint="load them in parts, or have ingest.max_unpacked_bytes raised",
            )


class FileGrowth:
    def __init__(self, budget: UnpackBudget, name: str, packed_bytes: int) -> None:
        self._budget = budget
        self._name = name
        self._allowed = max(FREE_GROWTH_BYTES, budget.limits.max_ratio * packed_bytes)
        self._unpacked = 0
        self._spooled = 0
        self._looked_at = -_LOOK_AT_DISK_BYTES

    def counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The unpacked chunks, as long as they are not too many."""
        for chunk in chunks:
            self._unpacked += len(chunk)
            self._budget.check(self._unpacked, self._name)
            if self._unpacked > self._allowed:
                raise TooLarge(
                    f"{self._name} unpacks to more than {self._budget.limits.max_ratio:,} times its size",
                    code="file_explodes",
                    hint="send it unpacked, or in parts; who runs frazil can raise ingest.max_unpack_ratio",
                )
            yield chunk

    def write(self, copy: BinaryIO, data: bytes) -> None:
        """Add to the unpacked copy, as long as the disk has room."""
        self._spooled += len(data)
        self._budget.check(self._spooled, self._name)
        if self._spooled - self._looked_at >= _LOOK_AT_DISK_BYTES:
            self._looked_at = self._spooled
            self._check_disk(copy)
        with translated_disk_errors(f"unpack {self._name}"):
            copy.write(data)

    def settle(self) -> None:
        self._budget.settle(max(self._unpacked, self._spooled))

    def _check_disk(self, copy: BinaryIO) -> None:
        disk = os.fstatvfs(copy.fileno())
        if disk.f_bavail * disk.f_frsize < self._budget.limits.min_free_bytes + _LOOK_AT_DISK_BYTES:
            raise TooLarge(
                f"the disk has no room for {self._name} unpacked",
                code="disk_full",
                hint="make room, or load it in parts; min_free_bytes are left free",
            )


def compression_of(head: bytes) -> str | None:
    """What a file is packed with, by its first bytes."""
    return next((name for magic, name in _PACKED if magic.match(head)), None)


def refuse_archives(head: bytes, name: str, packed: str | None) -> None:
    """Raise for what cannot be read as text: archives of several files, and what is packed twice."""
    for magic, what in _NOT_READ:
        if magic.match(head):
            raise InvalidInput(
                f"{name} is {what}{' inside of ' + packed if packed else ''}, which is not read",
                code="unsupported_archive",
                hint="unpack it and send the files in it, plain or each packed with gzip, bzip2 or zstd",
            )
    if packed is not None and (inner := compression_of(head)) is not None:
        raise InvalidInput(
            f"{name} is {inner} inside of {packed}: it is unpacked once only",
            code="nested_compression",
            hint="pack the file once",
        )
