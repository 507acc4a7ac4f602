"""Note paths: paths from a table are checked, so that no file is written outside of the folder."""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from frazil.crash import crash_point
from frazil.vault.links import folded, is_note

_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³")}
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 2000
_BELOW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathRefused(Exception):
    """A path or a file that is left alone; its text is the reason."""


def check_path(path: str | None) -> str:
    """The path, if it is that of a note inside a folder and can be read back as such."""
    if not path or not isinstance(path, str):
        raise PathRefused("there is no path")
    if "\0" in path:
        raise PathRefused("the path has a null character")
    parts = path.split("/")
    if path.startswith("/") or "" in parts or "." in parts or ".." in parts:
        raise PathRefused("the path does not stay inside the folder")
    if any(part.startswith(".") for part in parts):
        raise PathRefused("the path is hidden, and hidden files are no notes")
    if any(part.partition(".")[0].rstrip().lower() in _RESERVED for part in parts):
        raise PathRefused("the path has a name that Windows keeps for devices")
    if len(path.encode()) > _MAX_PATH_BYTES or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        raise PathRefused("the path is too long")
    if not is_note(path):
        raise PathRefused("the path does not end in .md or .markdown")
    return path


def collisions(paths: Iterable[str]) -> dict[str, str]:
    """Paths that cannot exist together on every file system, each with the reason."""
    same: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        same[folded(path)].append(path)
    refused = {
        path: "another path differs from it in case only" for group in same.values() if group[1:] for path in group
    }
    for path in list(same):
        parts = path.split("/")
        for count in range(1, len(parts)):
            for file in same.get("/".join(parts[:count]), ()):
                refused.update(dict.fromkeys([file, *same[path]], "one path is a folder in another"))
    return refused


class OutputFolder:
    """A folder that is written below, never through a link. A context manager."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._root)

    def read(self, path: str, limit: int) -> bytes | None:
        """The bytes at a path, at most one more than `limit`; None if nothing is there."""
        *folders, name = path.split("/")
        try:
            at = self._open(folders, make=False)
        except FileNotFoundError:
            return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=at), "rb") as file:
                return file.read(limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PathRefused(f"what is there is no file that can be read: {error.strerror}") from error
        finally:
            os.close(at)

    def write(self, path: str, content: bytes) -> None:
        """The file is there as a whole or not at all, whatever is killed."""
        *folders, name = path.split("/")
        at = self._open(folders, make=True)
        # Hidden, so that neither an ingest nor a watch takes it for a note.
        temporary = f".frazil-{secrets.token_hex(8)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o666, dir_fd=at), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            crash_point("vault_file_beside")
            os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=at)
            raise PathRefused(f"it cannot be written: {error.strerror}") from error
        finally:
            os.close(at)

    def remove(self, path: str) -> None:
        *folders, name = path.split("/")
        try:
            at = self._open(folders, make=False)
        except FileNotFoundError:
            return
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PathRefused(f"it cannot be deleted: {error.strerror}") from error
        finally:
            os.close(at)

    def _open(self, folders: list[str], *, make: bool) -> int:
        """The innermost of these folders, each opened in the one before and none of them a link."""
        at = os.dup(self._root)
        for folder in folders:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=at)
                below = os.open(folder, _BELOW, dir_fd=at)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise PathRefused(f"its folder {folder[:60]!r} is no folder of its own: {error.strerror}") from error
            finally:
                os.close(at)
            at = below
        return at
