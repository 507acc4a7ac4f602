"""Disk errors: a full disk, a missing file and other failures of a local disk as errors of frazil."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from frazil.errors import NotFound, Unavailable


@contextlib.contextmanager
def translated_disk_errors(doing: str) -> Iterator[None]:
    """Raise `NotFound` for a missing file, `Unavailable` (`disk_full`, `storage_unavailable`) for all else."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(Path(str(error.filename))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(
                f"cannot {doing}: the disk is full", code="disk_full", hint="free space on the disk"
            ) from error
        raise Unavailable(f"cannot {doing}: {error.strerror or error}", code="storage_unavailable") from error


def missing(path: Path) -> NotFound:
    return NotFound(f"there is no file {path}", code="object_missing")
