"""Folder locks: a process holds a local folder, so that no other process removes it; the lock ends with the process.

A killed process holds no lock, so the age of a folder is not needed to decide whether it is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from frazil.crash import crash_point
from frazil.errors import Unavailable

_DOOMED = ".gone-"
_POLL_SECONDS = 0.02


class FolderLock:
    """A shared lock: several may hold the same folder."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def of(cls, folder: Path) -> FolderLock:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return cls(descriptor)

    @classmethod
    def of_new(cls, folder: Path) -> FolderLock:
        """Make the folder under the lock of its parent, so that it is held before anyone can look at it."""
        with exclusive(folder.parent):
            folder.mkdir()
            return cls.of(folder)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def exclusive(folder: Path, patience_seconds: float = 600.0) -> Iterator[None]:
    """An exclusive lock to add and remove folders in this one, on this machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + patience_seconds
    try:
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise Unavailable(f"another process has locked {folder} for {patience_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def remove_unheld(folder: Path, *, keep: Collection[str] = ()) -> list[str]:
    """Remove the folders in this one that no process holds, except those to keep; returns the removed names."""
    with exclusive(folder):
        return [path.name for path in sorted(folder.iterdir()) if path.name not in keep and remove_if_unheld(path)]


def remove_if_unheld(path: Path) -> bool:
    """Remove one folder, under the lock of its parent. It is renamed first: a part of it never looks complete."""
    if not path.is_dir():
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _locked(descriptor):
            return False
        if not path.name.startswith(_DOOMED):
            doomed = path.parent / f"{_DOOMED}{path.name}"
            if doomed.exists():
                shutil.rmtree(doomed)
            path = path.rename(doomed)
            crash_point("folder_doomed")
        shutil.rmtree(path)
        return True
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
