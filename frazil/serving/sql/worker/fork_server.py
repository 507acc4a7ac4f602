"""Fork server: one process that has everything loaded and forks the query workers.

Loading the engine and its extensions takes half a second, a fork a few milliseconds; so a killed worker is replaced
before anybody waits for it. The fork server runs no query. It stays without threads of its own making, because a fork
copies only the thread that calls it, and what others held would stay locked.

`python -m frazil.serving.sql.worker.fork_server FD`: packets of JSON over an inherited socket. The first one has
the configuration of the workers, with the key of the object store: no secret is in the command line or environment.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from glob import glob
from typing import Any

import pyarrow as pa

from frazil.child_process import die_with_parent
from frazil.serving.sql.worker import sandbox
from frazil.serving.sql.worker.duckdb_engine import Engine, Store
from frazil.serving.sql.worker.worker import WorkerConfig, serve

PACKET = 65_536
_SLOW_NICE = 15
_MOST_FILES = 4096
_WAYS = {signal.SIGKILL: "killed", signal.SIGXCPU: "used up its processor time"}


class ForkServer:
    def __init__(self, sock: socket.socket, engine: Engine, config: WorkerConfig) -> None:
        self._sock = sock
        self._engine = engine
        self._config = config
        self._children: dict[int, int] = {}

    def run(self) -> None:
        """Obey the pool until it is gone; workers end with the fork server."""
        woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if woken in ready:
                os.read(woken, 4096)
            self._reap()
            if self._sock.fileno() in ready and not self._obey():
                return

    def _obey(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self._sock, PACKET, 1)
        if not packet:
            return False
        order = json.loads(packet)
        number = int(order["number"])
        if order["do"] == "spawn":
            self._spawn(number, fds[0])
            os.close(fds[0])
        elif (pid := self._pid(number)) is not None:
            # Only a child that was not reaped yet is signalled: its number cannot be another process's by now.
            if order["do"] == "kill":
                os.kill(pid, signal.SIGKILL)
            else:
                _step_back(pid)
        return True

    def _spawn(self, number: int, fd: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_worker(fd, self._sock, self._engine, self._config, parent)
        self._children[pid] = number
        self._report({"born": number, "pid": pid})

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._children.pop(pid)
            self._report({"gone": number, "reason": _reason(status)})

    def _pid(self, number: int) -> int | None:
        return next((pid for pid, known in self._children.items() if known == number), None)

    def _report(self, event: dict[str, Any]) -> None:
        self._sock.send(json.dumps(event).encode())


def _become_worker(fd: int, control: socket.socket, engine: Engine, config: WorkerConfig, parent: int) -> None:
    """The rest of a worker's life; it never returns into the code of the fork server."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.detach()
        # Nothing of the fork server stays open: neither its socket nor what wakes it.
        os.closerange(3, fd)
        os.closerange(fd + 1, _MOST_FILES)
        silence = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(silence, standard)
        serve(socket.socket(fileno=fd), engine, config, parent)
        code = 0
    finally:
        os._exit(code)


def _step_back(pid: int) -> None:
    """Let others go first. On Linux the priority is a thread's, and a new thread takes after the one that starts it."""
    # Twice, for a thread that was started in between.
    for _ in range(2):
        for task in glob(f"/proc/{pid}/task/*"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(os.path.basename(task)), _SLOW_NICE)


def _reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return _WAYS.get(signal.Signals(number), f"signal {number}")
    return f"exit {os.waitstatus_to_exitcode(status)}"


def _warm(engine: Engine) -> None:
    """Go once through what a worker does, so that nothing is imported behind its walls, where no file can be opened."""
    connection = engine.connection
    rows = pa.table({"_seq": [1], "name": ["a"], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    connection.execute("CREATE SCHEMA warm")
    connection.from_arrow(pa.ipc.open_stream(sink.getvalue()).read_all()).create("warm.rows")
    connection.from_arrow(rows).insert_into("warm.rows")
    engine.warm()
    connection.execute("DROP SCHEMA warm CASCADE")


def main(fd: int) -> None:
    parent = os.getppid()
    die_with_parent(parent)
    sandbox.hide_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    given = json.loads(sock.recv(PACKET))
    engine = Engine(Store(**given["store"]))
    _warm(engine)
    config = WorkerConfig(**{**given["worker"], "rules": sandbox.SandboxRules(**given["worker"]["rules"])})
    gc.collect()
    gc.freeze()
    sock.send(json.dumps({"awake": os.getpid(), "threads": len(os.listdir("/proc/self/task"))}).encode())
    ForkServer(sock, engine, config).run()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except (BrokenPipeError, ConnectionResetError):
        # The pool is gone, and this process with it.
        sys.exit(0)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
