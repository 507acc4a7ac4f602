"""Fsync for files that PyIceberg writes to a local disk: durable before the catalog may point to them.

Without this a power cut can leave a catalog that names a metadata file which was never written, and the table is gone.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

_BUFFER_BYTES = 1 << 20


class FsyncFileIO(PyArrowFileIO):
    """PyIceberg's own file access, but for the writing of local files."""

    def new_output(self, location: str) -> PyArrowFile:
        plain = super().new_output(location)
        return SyncedFile(location, plain._path, plain._filesystem) if location_is_local(location) else plain


class SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return SyncedStream(Path(self._path), overwrite=overwrite)


class SyncedStream(io.BufferedWriter):
    """A file that is durable, and can be found, once `close` has returned. An existing one is an error, not a race."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._folders = _make_folders(path.parent)
        super().__init__(io.FileIO(path, "w" if overwrite else "x"), _BUFFER_BYTES)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        for folder in self._folders:
            _sync_folder(folder)


def location_is_local(location: str) -> bool:
    return location.startswith(("file:", "/"))


def _make_folders(folder: Path) -> list[Path]:
    """Make the folder; returns every folder whose list of names changes by a file in it."""
    changed = [folder]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
