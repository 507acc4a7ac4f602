"""Tasks in child processes: their results, their errors, and how they are ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from frazil.errors import FrazilError, Unavailable
from frazil.registry import ProgressCallback
from frazil.serving.child_tasks import ChildCancelled, ChildCodes, ChildFailed, ChildTasks, TookTooLong

CODES = ChildCodes("lost", "killed", "out_of_memory")


@dataclass(frozen=True)
class Task:
    """What a child does here, by its name."""

    kind: str

    def run(self, report_progress: ProgressCallback) -> Any:
        match self.kind:
            case "work":
                print("a library prints what it likes")
                report_progress({"done": 1})
                return {"pid": os.getpid(), "nice": os.nice(0)}
            case "sleep":
                report_progress({"asleep": True})
                time.sleep(600)
            case "unavailable":
                raise Unavailable("later", code="try_later", hint="wait", details=[1])
            case "memory":
                raise MemoryError
            case "error":
                raise RuntimeError("broken")
            case "signal":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                sys.exit(3)


def test_the_result_and_the_progress_of_a_task_come_back() -> None:
    progress: list[Mapping[str, Any]] = []
    found = ChildTasks(CODES, nice=3).run(Task("work"), report_progress=progress.append)
    assert found["pid"] != os.getpid() and found["nice"] == os.nice(0) + 3 and progress == [{"done": 1}]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("unavailable", "try_later"),
        ("memory", "out_of_memory"),
        ("error", "lost"),
        ("signal", "killed"),
        ("exit", "lost"),
    ],
)
def test_a_task_that_fails_is_an_error_with_a_code(kind: str, code: str) -> None:
    with pytest.raises(FrazilError) as failed:
        ChildTasks(CODES).run(Task(kind))
    assert failed.value.code == code and failed.value.hint
    assert isinstance(failed.value, ChildFailed) or (failed.value.transient and failed.value.details == [1])


def test_a_task_that_takes_too_long_is_killed() -> None:
    with pytest.raises(TookTooLong):
        ChildTasks(CODES).run(Task("sleep"), timeout_seconds=1)


def test_a_cancellation_counts_for_one_job() -> None:
    tasks = ChildTasks(CODES)
    with pytest.raises(ChildCancelled), tasks.job():
        tasks.run(
            Task("sleep"), report_progress=lambda _: threading.Thread(target=tasks.cancel).start(), timeout_seconds=120
        )
    with tasks.job():
        assert tasks.run(Task("work"))


def test_a_cancellation_between_two_jobs_meets_the_next() -> None:
    """It may be meant for a job that its runner has begun and that is not here yet."""
    tasks = ChildTasks(CODES)
    tasks.cancel()
    with pytest.raises(ChildCancelled), tasks.job():
        tasks.run(Task("work"))
    with tasks.job():
        assert tasks.run(Task("work"))
