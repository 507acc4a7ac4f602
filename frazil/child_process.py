"""Child processes: end with their parent, give way to others, and keep standard output for their answers."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1
# Loaded here and not where it is called: between fork and exec nothing may be loaded.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """End by SIGKILL when the parent ends, also when it ended just before.

    Linux counts the thread of the parent that started this process: it is killed when that thread ends.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def give_way(nice: int) -> None:
    """Lower the priority of this process: commits and answers come first."""
    os.nice(nice)


def private_stdout() -> BinaryIO:
    """Standard output for the answers alone; what libraries print goes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers
