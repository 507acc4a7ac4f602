"""Private files: secrets that only their owner can read, and the one rule by which they are read.

A path may be a link to a file of another user, a FIFO that blocks, or be changed between a check and a read. So
the file is opened first, without following a link and without waiting, and the open file is checked.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from frazil.errors import Misconfigured

MAX_PRIVATE_BYTES = 64 << 10
"""Keys, passwords and DSNs have less; a path that names a log by mistake has more."""

_HINT = "use a regular text file with mode 0600 that is owned by the user of frazil"


def read_private(path: Path, what: str) -> str:
    """The text of a private file. `what` says in errors what the file is to frazil.

    `Misconfigured` with the code `secret_file_mode` where others may read it, `bad_secret_file` for all else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise _refused(path, what, why) from None
    try:
        _check(os.fstat(descriptor), path, what)
        content = os.read(descriptor, MAX_PRIVATE_BYTES + 1)
    except OSError as error:
        raise _refused(path, what, error.strerror or str(error)) from None
    finally:
        os.close(descriptor)
    if len(content) > MAX_PRIVATE_BYTES:
        raise _refused(path, what, f"it has more than {MAX_PRIVATE_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _refused(path, what, "it is not text") from None


def _check(status: os.stat_result, path: Path, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, what, "it is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise _refused(path, what, f"it is owned by another user (uid {status.st_uid})")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise Misconfigured(
            f"other users can read {path} ({what}, mode {mode:04o})",
            code="secret_file_mode",
            hint=f"chmod 600 {path}",
        )


def _refused(path: Path, what: str, why: str) -> Misconfigured:
    return Misconfigured(f"{path} ({what}) cannot be read: {why}", code="bad_secret_file", hint=_HINT)
