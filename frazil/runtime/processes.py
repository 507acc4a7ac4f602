"""Child processes that never outlive their supervisor, and how to find and end those of an earlier run.

A process is known by its number and start time, because numbers are used again; and by the run id in its environment,
which also its own children carry (the JVM of the pipeline, for example).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from frazil.child_process import die_with_parent

RUN_ID = "FRAZIL_RUN_ID"
PART = "FRAZIL_PART"
SUPERVISOR = "FRAZIL_SUPERVISOR_PID"


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that cannot be taken for another one."""

    pid: int
    started: int


def identity_of(pid: int) -> ProcessIdentity | None:
    """The process that has this number now; None if there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else ProcessIdentity(pid, int(fields[18]))


def is_alive(identity: ProcessIdentity) -> bool:
    return identity_of(identity.pid) == identity


def spawn(command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, its output appended to `log`, that is killed when this thread ends.

    The session keeps a Ctrl-C in the terminal from reaching the child: the supervisor decides who stops when.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return subprocess.Popen(
            command,
            env={**environment, SUPERVISOR: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    finally:
        os.close(descriptor)


def watch_supervisor(environment: Mapping[str, str], *, every_seconds: float = 1.0) -> None:
    """End this process when its supervisor is gone, where the kernel does not see to it. No supervisor, no watch."""
    parent = int(environment.get(SUPERVISOR) or 0)
    if not parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every_seconds)
        os._exit(1)

    threading.Thread(target=watch, name="watch-supervisor", daemon=True).start()


def of_run(run_id: str, *, part: str | None = None) -> list[ProcessIdentity]:
    """All processes that carry this run id (and part) in their environment, this one not counted."""
    wanted = {f"{RUN_ID}={run_id}".encode()} | ({f"{PART}={part}".encode()} if part else set())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        identity = identity_of(int(entry.name)) if wanted <= set(environment) else None
        if identity is not None:
            found.append(identity)
    return found


def end(identities: Iterable[ProcessIdentity], *, grace_seconds: float = 0.0) -> int:
    """End these processes, politely for as long as `grace_seconds`; returns how many there were."""
    alive = [identity for identity in identities if is_alive(identity)]
    count = len(alive)
    if grace_seconds:
        alive = _signal_and_wait(alive, signal.SIGTERM, grace_seconds)
    _signal_and_wait(alive, signal.SIGKILL, 5.0)
    return count


def _signal_and_wait(identities: list[ProcessIdentity], what: signal.Signals, seconds: float) -> list[ProcessIdentity]:
    for identity in identities:
        if is_alive(identity):
            try:
                os.kill(identity.pid, what)
            except ProcessLookupError:
                continue
    deadline = time.monotonic() + seconds
    while (identities := [i for i in identities if is_alive(i)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return identities
