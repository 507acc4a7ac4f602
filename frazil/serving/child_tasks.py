"""Child tasks: work in processes of their own, whose memory is theirs alone, and which can be killed at any time.

A child is a new Python, not a fork: it inherits neither the threads nor the memory of a pipeline with a JVM in it. It
gives way to everything else on the machine (nice), and ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import frazil
from frazil.errors import FrazilError, Unavailable
from frazil.registry import ProgressCallback

NICE = 10
_COMMAND = [sys.executable, "-m", "frazil.serving.child_program"]
_Result = TypeVar("_Result", covariant=True)


class ChildTask(Protocol[_Result]):
    """Something to do in a child: a value that can be pickled, of a module that a child can import."""

    def run(self, report_progress: ProgressCallback, /) -> _Result: ...


class TookTooLong(FrazilError):
    code = "took_too_long"


class ChildFailed(FrazilError):
    """The child died, or raised what is none of our errors."""


class ChildCancelled(BaseException):
    """The job was cancelled. Not an error of the work: what is under way is done again later."""


@dataclass(frozen=True)
class ChildCodes:
    """The codes of the errors by which a child fails."""

    lost: str
    killed: str
    out_of_memory: str


class ChildTasks:
    """The child tasks of the jobs of one handler, one child at a time. `cancel` is called from another thread."""

    def __init__(self, codes: ChildCodes, *, nice: int = NICE) -> None:
        self._codes = codes
        self._nice = nice
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    @contextmanager
    def job(self) -> Iterator[None]:
        """One job. A cancellation counts until the end of the job that it meets, and not for the jobs after that.

        One that comes between two jobs meets the next. It is not dropped there: it may be meant for a job that its
        runner has begun and that is not here yet.
        """
        try:
            yield
        finally:
            with self._lock:
                self._is_cancelled = False

    def run(
        self,
        task: ChildTask[_Result],
        *,
        timeout_seconds: float | None = None,
        report_progress: ProgressCallback = lambda progress: None,
    ) -> _Result:
        """The result of the task. Raises its `FrazilError`, `TookTooLong`, `ChildFailed` or `ChildCancelled`."""
        with self._started() as child, _killed_after(child, timeout_seconds) as is_late:
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(pickle.dumps(task))
                child.stdin.close()
            except BrokenPipeError:
                pass  # it died before it read the task; its exit code has the reason
            kind, value = _last_message(child.stdout, report_progress)
            exit_code = child.wait()
        self.check()
        if kind == "result" and exit_code == 0:
            result: _Result = value
            return result
        if kind in ("error", "failed", "out_of_memory"):
            raise self._error(kind, value)
        if is_late.is_set():
            raise TookTooLong(f"it took longer than {timeout_seconds:.0f} s", hint="give it more time")
        raise self._lost(exit_code)

    def cancel(self) -> None:
        """Kill the child of the running job, and let the job begin no other."""
        with self._lock:
            self._is_cancelled = True
            if self._child is not None:
                self._child.kill()

    def check(self) -> None:
        """Raise `ChildCancelled` if the job was cancelled."""
        if self._is_cancelled:
            raise ChildCancelled

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        root = str(Path(frazil.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        with self._lock:
            self.check()
            child = self._child = subprocess.Popen(
                [*_COMMAND, str(os.getpid()), str(self._nice)],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        try:
            yield child
        finally:
            with self._lock:
                self._child = None
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def _error(self, kind: str, value: Any) -> FrazilError:
        if kind == "error":
            error, is_transient = value
            of_kind = Unavailable if is_transient else FrazilError
            return of_kind(error["message"], code=error["code"], hint=error["hint"], details=error.get("details"))
        if kind == "failed":
            return ChildFailed(value, code=self._codes.lost, hint="the log of the pipeline has the reason")
        return ChildFailed(
            "the child process has not enough memory",
            code=self._codes.out_of_memory,
            hint="give the machine more memory, or search fewer columns and chunks",
        )

    def _lost(self, exit_code: int) -> ChildFailed:
        if exit_code < 0:
            hint = "often the system kills it for want of memory; its log has the reason"
            name = signal.Signals(-exit_code).name
            return ChildFailed(f"the child process was killed by {name}", code=self._codes.killed, hint=hint)
        return ChildFailed(
            f"the child process ended with {exit_code}",
            code=self._codes.lost,
            hint="the log of the pipeline has the reason",
        )


@contextmanager
def _killed_after(child: subprocess.Popen[bytes], seconds: float | None) -> Iterator[threading.Event]:
    """The event is set if the child was killed because its time was over."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        child.kill()

    if seconds is None:
        yield is_late
        return
    timer = threading.Timer(max(0.1, seconds), end)
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


def _last_message(answers: IO[bytes], report_progress: ProgressCallback) -> tuple[str, Any]:
    """What the child sent last, beside progress. A child that is killed may leave half a message."""
    while True:
        try:
            kind, value = pickle.load(answers)  # noqa: S301 - from a process of ours
        except (EOFError, pickle.UnpicklingError):
            return "", None
        if kind != "progress":
            return str(kind), value
        progress: Mapping[str, Any] = value
        report_progress(progress)
