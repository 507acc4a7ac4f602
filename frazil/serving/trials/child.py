"""The program of a child: a task on standard input, its result on standard output, and nothing else there."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from typing import Any

from frazil.errors import FrazilError
from frazil.serving.trials.children import ChildFailed, Task

_PR_SET_PDEATHSIG = 1


def main() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
    os.nice(int(sys.argv[2]))
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task: Task[Any] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from a process of ours
    told: tuple[bool, Any]
    try:
        told = (True, task.run())
    except FrazilError as error:
        told = (False, error)
    except MemoryError:
        told = (False, ChildFailed("there is not enough memory for it"))
    except Exception as error:
        traceback.print_exc()
        told = (False, ChildFailed(f"{type(error).__name__}: {str(error)[:300]}"))
    pickle.dump(told, answer)
    answer.close()


if __name__ == "__main__":
    main()
