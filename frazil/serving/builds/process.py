"""Building in a process of its own, as its parent sees it: start, listen, and an error of ours whatever happens."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frazil.errors import FrazilError, Unavailable
from frazil.registry import ProgressCallback
from frazil.serving.builds.plan import BuildOrder, BuildPlan

_CHILD = [sys.executable, "-m", "frazil.serving.builds.child"]


class BuildLost(FrazilError):
    """The process that builds ended without a word; there is no artifact."""

    code = "build_process_lost"


class BuildProcess:
    """One child at a time; another thread may cancel it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def build(self, plan: BuildPlan, place: Path, generation: str, report_progress: ProgressCallback) -> dict[str, Any]:
        """Build into `place/artifact`, with room for what is on its way in `place/spill`; the child's report.

        Raises what it failed with; `BuildLost` when it was killed, `Unavailable` when it was cancelled.
        """
        artifact, spill = place / "artifact", place / "spill"
        artifact.mkdir()
        spill.mkdir()
        order = BuildOrder(plan, artifact, spill, generation, os.getpid())
        with self._started() as child:
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(pickle.dumps(order))
                child.stdin.close()
            except BrokenPipeError:
                pass  # it died before it listened; how, its end tells
            last: dict[str, Any] = {}
            for line in child.stdout:
                last = json.loads(line)
                if "progress" in last:
                    report_progress(last["progress"])
            code = child.wait()
        return self._told(last, code)

    def cancel(self) -> None:
        """Kill what is at work, and begin nothing more."""
        with self._lock:
            self._is_over = True
            if self._child is not None:
                self._child.kill()

    @property
    def is_over(self) -> bool:
        return self._is_over

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            if self._is_over:
                raise _given_up()
            child = self._child = subprocess.Popen(_CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield child
        finally:
            with self._lock:
                self._child = None
            if child.poll() is None:
                child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()

    def _told(self, last: dict[str, Any], code: int) -> dict[str, Any]:
        if self._is_over:
            raise _given_up()
        if "error" in last:
            told = last["error"]
            kind = Unavailable if last["transient"] else FrazilError
            raise kind(told["message"], code=told["code"], hint=told["hint"], details=told.get("details"))
        if code == 0 and "report" in last:
            report: dict[str, Any] = last["report"]
            return report
        if code < 0:
            name = signal.Signals(-code).name
            hint = "that is often the system, for want of memory; its log tells" if code == -signal.SIGKILL else ""
            raise BuildLost(f"the process that builds was killed by {name}", code="build_process_killed", hint=hint)
        raise BuildLost(f"the process that builds ended with {code}", hint="the pipeline's log tells why")


def _given_up() -> Unavailable:
    return Unavailable("the build was given up: the pipeline ends", code="build_given_up", hint="it is done again")
