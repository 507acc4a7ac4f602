"""Objects as files of a local folder: written beside their place, flushed to the disk, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.storage.disk_errors import missing, translated_disk_errors
from frazil.storage.fsync import sync_files
from frazil.storage.objects import UNFINISHED, StoredObject, checked_key

# A folder that was just made may be removed, being empty, by a `delete` at the same moment.
_TRIES = 10


class FolderObjects:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put_file(self, key: str, path: Path, *, tags: Mapping[str, str] | None = None) -> None:
        target = self._path(key)
        with translated_disk_errors(f"write {target}"):
            unfinished = self._unfinished(target)
            try:
                shutil.copyfile(path, unfinished)
                os.chmod(unfinished, 0o600)
                sync_files([str(unfinished)])
                crash_point("object_before_rename")
                os.replace(unfinished, target)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
            self._sync_names(target)

    def get_file(self, key: str, path: Path) -> None:
        source = self._path(key)
        with translated_disk_errors(f"copy {source} to {path}"):
            shutil.copyfile(source, path)

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with translated_disk_errors(f"read {path}"):
            return path.read_bytes()

    def list(self, below: str = "") -> Iterator[StoredObject]:
        for path in self._files(self._folder / below.rpartition("/")[0]):
            key = path.relative_to(self._folder).as_posix()
            if not key.startswith(below) or path.name.startswith(UNFINISHED):
                continue
            # It may be deleted between the listing and the look.
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                yield StoredObject(key, found.st_size, found.st_mtime)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with translated_disk_errors(f"delete {path}"):
                path.unlink(missing_ok=True)
                self._remove_empty(path.parent)

    def tag(self, key: str, tags: Mapping[str, str]) -> bool:
        self._must_exist(key)
        return False

    def tags(self, key: str) -> Mapping[str, str] | None:
        self._must_exist(key)
        return None

    def sweep(self, *, older_than_seconds: float) -> int:
        removed = 0
        for path in list(self._files(self._folder)):
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(UNFINISHED) and time.time() - path.stat().st_mtime > older_than_seconds:
                    path.unlink()
                    self._remove_empty(path.parent)
                    removed += 1
        return removed

    def _path(self, key: str) -> Path:
        return self._folder / checked_key(key)

    def _must_exist(self, key: str) -> None:
        if not (path := self._path(key)).is_file():
            raise missing(path)

    def _files(self, folder: Path) -> Iterator[Path]:
        for parent, _, names in os.walk(folder):
            yield from (Path(parent) / name for name in names)

    def _unfinished(self, target: Path) -> Path:
        """A new, empty file beside the target."""
        for _ in range(_TRIES):
            target.parent.mkdir(parents=True, exist_ok=True)
            path = target.parent / f"{UNFINISHED}{uuid.uuid4().hex}"
            with contextlib.suppress(FileNotFoundError):
                path.touch(0o600, exist_ok=False)
                return path
        raise Unavailable(
            f"the folder of {target} was removed repeatedly while the object was written", code="storage_unavailable"
        )

    def _sync_names(self, target: Path) -> None:
        sync_files([str(target)], below=str(self._folder.parent))

    def _remove_empty(self, folder: Path) -> None:
        """An object store has no folders, so empty folders are removed."""
        with contextlib.suppress(OSError):
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent
