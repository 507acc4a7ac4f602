"""Processes by their id: whether they run, whose children they are, stopped and continued."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PATIENCE_SECONDS = 120.0


def is_running(pid: int) -> bool:
    return _state(Path(f"/proc/{pid}")) not in ("", "Z", "X")


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in ("Z", "X"):
            found.append(int(status.parent.name))
    return found


def signal_to(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return


def stop(pid: int) -> None:
    """SIGSTOP, and back when it stands still: until each of its threads has taken notice, it goes on working."""
    signal_to(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(_state(thread) not in ("T", "t", "", "Z", "X") for thread in Path(f"/proc/{pid}/task").glob("*")):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def go_on(pid: int) -> None:
    signal_to(pid, signal.SIGCONT)


def _state(entry: Path) -> str:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
