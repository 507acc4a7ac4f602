"""The supervisor behind `frazil up`: starts the parts, starts again what dies, and stops all in the right order.

It is one loop in one thread. Nothing it does can lose an event: what must survive a kill is in the bus and the tables,
and the supervisor keeps only what `frazil status` and the next `up` read (`run/supervisor.json`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Literal, Protocol

from frazil.errors import Unavailable
from frazil.runtime import processes
from frazil.runtime.data_dir import DataDir, write_json
from frazil.runtime.logs import last_lines, rotate

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 10.0
STABLE_SECONDS = 60.0
STUCK_EVERY_SECONDS = 5.0
UNREADY_STOP_SECONDS = 2.0
"""A part that is not ready has nothing to finish: a JVM on its way up need not be waited for."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

State = Literal["starting", "ready", "restarting", "stopping", "stopped"]


@dataclass(frozen=True)
class SupervisedPart:
    """One child process.

    `probe(pid)` says cheaply whether it does its work: None for yes, else what it is still busy with. A `vital` part
    that ends before it was ever ready ends the start; any other end is followed by a new start. A part `after` another
    is first started when that one is ready. `stuck` is asked every few seconds of a ready part: a reason for which only
    a new start helps, or None.
    """

    name: str
    command: Sequence[str]
    probe: Callable[[int], str | None]
    environment: Mapping[str, str] = field(default_factory=dict)
    vital: bool = True
    stop_seconds: float = 15.0
    after: str | None = None
    stuck: Callable[[], str | None] | None = None


@dataclass
class PartState:
    """A part as it is now."""

    part: SupervisedPart
    state: State = "starting"
    doing: str = "starting"
    process: subprocess.Popen[bytes] | None = None
    identity: processes.ProcessIdentity | None = None
    started_at: float = 0.0
    since: str = ""
    restarts: int = 0
    ready_after_seconds: float | None = None
    next_start: float = 0.0
    next_look: float = 0.0
    backoff_seconds: float = FIRST_BACKOFF_SECONDS

    @property
    def name(self) -> str:
        return self.part.name


class Screen(Protocol):
    """Who watches."""

    def show(self, parts: Sequence[PartState], seconds: float) -> None:
        """Called at every change and a few times a second while something is not ready."""

    def ready(self, parts: Sequence[PartState], seconds: float) -> None:
        """All vital parts are ready for the first time."""

    def say(self, text: str) -> None:
        """Something worth a line of its own: a part died, a stop was requested."""


class Supervisor:
    """Runs the parts in their order; stops them in the order of `stop_order`.

    `facts` (the URL and the like) are for those who read `run/supervisor.json`.
    """

    def __init__(
        self,
        parts: Sequence[SupervisedPart],
        data: DataDir,
        *,
        run_id: str,
        facts: Mapping[str, Any],
        screen: Screen,
        stop_order: Sequence[str],
    ) -> None:
        self._states = [PartState(part) for part in parts]
        self._data = data
        self._run_id = run_id
        self._facts = dict(facts)
        self._screen = screen
        self._stop_order = {name: number for number, name in enumerate(stop_order)}
        self._begun = time.monotonic()
        self._was_ready = False
        self._asked = 0
        self._asked_by = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def ask_to_stop(self) -> None:
        """Stop in good order; called again, stop at once. Callable from any thread."""
        self._asked += 1
        os.write(self._wake_write, b"\0")

    def run(self) -> int:
        """Supervise until a stop is requested; returns the exit code.

        0: all parts finished their work. 1: one had to be killed (nothing is lost, the next start takes it up).
        128 + signal: a second signal to stop. Raises if a vital part does not come up at all.
        """
        with _Signals(self._signalled, self._wake_write):
            try:
                for state in self._states:
                    if state.part.after is None:
                        self._start(state)
                while not self._asked:
                    self._look()
                    self._wait(0.05 if self._unsettled() else 1.0)
            except BaseException:
                self._asked = max(self._asked, 1)
                self._stop_all()
                raise
            self._screen.say("stopping: requests finish, then pending events are committed (Ctrl-C again hurries)")
            return self._stop_all()

    def _signalled(self, number: int) -> None:
        self._asked += 1
        self._asked_by = number

    def _unsettled(self) -> bool:
        return any(state.state != "ready" for state in self._states)

    def _wait(self, seconds: float) -> None:
        """Sleep until a child ends, a signal comes or the time is over."""
        if select.select([self._wake_read], [], [], seconds)[0]:
            try:
                os.read(self._wake_read, 4096)
            except BlockingIOError:
                return

    def _start(self, state: PartState) -> None:
        log = self._data.logs / f"{state.name}.log"
        rotate(log)
        environment = {**os.environ, **state.part.environment}
        environment |= {processes.RUN_ID: self._run_id, processes.PART: state.name}
        state.process = processes.spawn(state.part.command, environment=environment, log=log)
        state.identity = processes.identity_of(state.process.pid)
        state.started_at = time.monotonic()
        self._turn(state, "starting", "starting")

    def _turn(self, state: PartState, to: State, doing: str) -> None:
        if (state.state, state.doing) == (to, doing) and state.since:
            return
        if state.state != to or not state.since:
            state.since = datetime.now(UTC).isoformat(timespec="milliseconds")
        state.state, state.doing = to, doing
        self._write()
        self._screen.show(self._states, self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def _look(self) -> None:
        for state in self._states:
            if state.process is None:
                if time.monotonic() >= state.next_start and (state.restarts or self._may_start(state)):
                    self._start(state)
            elif (code := state.process.poll()) is not None:
                self._died(state, code)
            elif state.state == "starting":
                self._probe(state, state.process.pid)
            elif state.part.stuck is not None and time.monotonic() >= state.next_look:
                state.next_look = time.monotonic() + STUCK_EVERY_SECONDS
                if reason := state.part.stuck():
                    self._screen.say(f"{state.name} cannot go on and is ended, to be started again: {reason}")
                    state.process.terminate()
            elif state.restarts and time.monotonic() - state.started_at > STABLE_SECONDS:
                state.backoff_seconds = FIRST_BACKOFF_SECONDS
        if not self._was_ready and all(state.state == "ready" for state in self._states if state.part.vital):
            self._was_ready = True
            self._screen.ready(self._states, self._seconds())
        if self._unsettled():
            self._screen.show(self._states, self._seconds())

    def _may_start(self, state: PartState) -> bool:
        return all(other.state == "ready" for other in self._states if other.name == state.part.after)

    def _probe(self, state: PartState, pid: int) -> None:
        doing = state.part.probe(pid)
        if doing is not None:
            self._turn(state, "starting", doing)
            return
        if state.ready_after_seconds is None:
            state.ready_after_seconds = self._seconds()
        self._turn(state, "ready", "")

    def _died(self, state: PartState, code: int) -> None:
        never_ready = state.ready_after_seconds is None
        how = f"exit code {code}" if code >= 0 else f"killed by {_signal_name(-code)}"
        log = self._data.logs / f"{state.name}.log"
        if state.part.vital and never_ready:
            raise Unavailable(
                f"the {state.name} ended right after its start ({how})",
                code=f"{state.name}_failed",
                hint=f"its last log lines are above; the whole log is {log}",
                details={"log": last_lines(log)},
            )
        processes.end(processes.of_run(self._run_id, part=state.name))
        state.process = state.identity = None
        state.restarts += 1
        state.next_start = time.monotonic() + state.backoff_seconds
        why = "".join(f": {line[:300]}" for line in last_lines(log, 1)) if never_ready else ""
        self._screen.say(f"{state.name} ended ({how}), starts again in {state.backoff_seconds:.1f} s, log {log}{why}")
        self._turn(state, "restarting", how)
        state.backoff_seconds = min(MAX_BACKOFF_SECONDS, state.backoff_seconds * 2)

    def _stop_all(self) -> int:
        killed = False
        for state in sorted(self._states, key=lambda s: self._stop_order.get(s.name, len(self._stop_order))):
            killed |= not self._stop(state)
        processes.end(processes.of_run(self._run_id))
        self._write()
        if self._asked > 1:
            return 128 + (self._asked_by or signal.SIGINT)
        return 1 if killed else 0

    def _stop(self, state: PartState) -> bool:
        """Whether the part ended by itself."""
        process = state.process
        in_time = True
        if process is not None and process.poll() is None:
            has_work = state.state == "ready"
            seconds = state.part.stop_seconds if has_work else min(UNREADY_STOP_SECONDS, state.part.stop_seconds)
            self._turn(state, "stopping", "finishing")
            process.terminate()
            deadline = time.monotonic() + seconds
            while process.poll() is None and time.monotonic() < deadline and self._asked < 2:
                self._wait(0.1)
            if process.poll() is None:
                in_time = not has_work
                if has_work and self._asked < 2:
                    self._screen.say(f"{state.name} did not finish in {seconds:.0f} s and is killed")
                process.kill()
                process.wait(10)
        state.process = state.identity = None
        self._turn(state, "stopped", "")
        return in_time

    def _write(self) -> None:
        parts: dict[str, Any] = {
            state.name: {
                "pid": state.identity.pid if state.identity else None,
                "pid_started": state.identity.started if state.identity else None,
                "state": state.state,
                "doing": state.doing,
                "restarts": state.restarts,
                "since": state.since,
                "ready_after_seconds": state.ready_after_seconds,
            }
            for state in self._states
        }
        try:
            write_json(
                self._data.supervisor_file,
                {"pid": os.getpid(), "run_id": self._run_id, **self._facts, "parts": parts},
            )
        except OSError as error:
            # Others find the parts by this file, but the parts run without it: a full disk must not end them.
            self._screen.say(f"cannot write {self._data.supervisor_file}: {error.strerror}")


class _Signals:
    """Takes the stop signals and the end of children for as long as it is entered; only the main thread may."""

    def __init__(self, stop: Callable[[int], None], wake: int) -> None:
        self._stop = stop
        self._wake = wake
        self._before: dict[int, Any] = {}
        self._wake_before = -1

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._on_stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._wake_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop(number)

    def __exit__(self, *error: object) -> None:
        if not self._before:
            return
        signal.set_wakeup_fd(self._wake_before)
        for number, before in self._before.items():
            signal.signal(number, before)


def end_leftovers(data: DataDir) -> int:
    """End what an earlier run on this directory left behind; only to be called under its lock."""
    earlier = data.supervisor()
    run_id = earlier.get("run_id")
    parts = earlier.get("parts")
    recorded = [
        processes.ProcessIdentity(part["pid"], part["pid_started"])
        for part in (parts.values() if isinstance(parts, dict) else ())
        if isinstance(part, dict) and part.get("pid") and part.get("pid_started")
    ]
    found = processes.of_run(run_id) if isinstance(run_id, str) and run_id else []
    return processes.end({*recorded, *found}, grace_seconds=2.0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
