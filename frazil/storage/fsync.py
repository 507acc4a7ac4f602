"""Fsync of local files, so that they survive a power cut. Object stores do this by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from frazil.storage.warehouse import local_path

_FEW_FILES = 16
_AT_ONCE = 8
"""A disk writes for several who wait at once in about the time that it takes for one."""


def sync_files(urls: Iterable[str], *, below: str | None = None) -> int:
    """Flush these local files and the folders that name them to the disk; returns how many files were flushed.

    With `below`, also the folders that name those folders, up to this one: some of them may be new as well.

    A commit that names a file is worth nothing after a power cut if the file itself was still in the page cache, and
    the bus forgets its copy of the rows once they are committed.
    """
    paths = {local_path(url) for url in urls if not url.startswith("s3:")}
    folders = {path.parent for path in paths}
    if below is not None:
        top = local_path(below)
        folders |= {folder for path in paths for folder in path.parents if folder.is_relative_to(top)}
    if len(paths) <= _FEW_FILES:
        for path in paths | folders:
            _sync(path)
    else:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fsync") as threads:
            list(threads.map(_sync, paths | folders))
    return len(paths)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
