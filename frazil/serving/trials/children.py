"""Work in child processes: what they take of memory is theirs alone, and whoever takes too long is killed.

A child is a new Python, not a fork: it inherits neither the threads nor the memory of a pipeline with a JVM in it. It
gives way to everything else on the machine (nice), and ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Protocol, TypeVar

import frazil
from frazil.errors import FrazilError

_PROGRAM = "frazil.serving.trials.child"
_TOLD_BYTES = 2000
_Result = TypeVar("_Result", covariant=True)


class Task(Protocol[_Result]):
    """Something to do in a child: a value that can be pickled, of a module that a child can import."""

    def run(self) -> _Result: ...


class TookTooLong(FrazilError):
    code = "took_too_long"


class ChildFailed(FrazilError):
    """The child died, or raised what is none of our errors."""

    code = "trial_failed"


class GivenUp(BaseException):
    """The process is about to end. Not an error of the work: whatever is under way is done again by the next one."""


class Children:
    """One child at a time. `cancel` is called from another thread."""

    def __init__(self, nice: int = 10) -> None:
        self._nice = nice
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._given_up = False

    def run(self, task: Task[_Result], *, timeout_seconds: float) -> _Result:
        """The result of the task; raises its `FrazilError`, `TookTooLong` or `ChildFailed`."""
        with tempfile.TemporaryFile() as errors:
            child = self._started(errors)
            try:
                out, _ = child.communicate(pickle.dumps(task), timeout=max(0.1, timeout_seconds))
            except subprocess.TimeoutExpired:
                raise TookTooLong(f"it took longer than {timeout_seconds:.0f} s", hint="give it more time") from None
            finally:
                child.kill()
                child.communicate()
                with self._lock:
                    self._child = None
            if self._given_up:
                raise GivenUp
            if child.returncode != 0:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TOLD_BYTES))
                told = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise ChildFailed(told or f"the process ended with {child.returncode}", hint="the log may tell more")
        succeeded, result = pickle.loads(out)  # noqa: S301 - from a process of ours
        if not succeeded:
            raise result
        found: _Result = result
        return found

    def cancel(self) -> None:
        with self._lock:
            self._given_up = True
            if self._child is not None:
                self._child.kill()

    def _started(self, errors: Any) -> subprocess.Popen[bytes]:
        here = str(Path(frazil.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        with self._lock:
            if self._given_up:
                raise GivenUp
            self._child = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(os.getpid()), str(self._nice)],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            return self._child
