"""Worker processes as the pool sees them: sockets to the fork server and to each worker, and their starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.errors import Misconfigured
from frazil.serving.sql.frames import Frame, pack, read_frame
from frazil.serving.sql.sent_tails import SentTails

_log = logging.getLogger(__name__)
_AWAKE_SECONDS = 60.0
_READY_SECONDS = 15.0
_PACKET = 65_536
_HEADER_BYTES = 1 << 20
# What a child needs to start Python, and what lets the supervisor find it; never what may hold a secret.
_PASSED_ON = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "FRAZIL_RUN_ID", "FRAZIL_PART", "FRAZIL_SUPERVISOR_PID")
_CHILD_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    # Threads that libraries start by themselves, and address space that they reserve and never use.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def child_environment() -> dict[str, str]:
    """The variables of a process that is going to stand behind the walls."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _CHILD_ENVIRONMENT


@dataclass(eq=False)
class WorkerConnection:
    """One worker, seen from the pool."""

    processes: WorkerProcesses
    number: int
    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tails: SentTails
    walls: dict[str, str] = field(default_factory=dict)
    gone: str = ""

    async def request(self, header: dict[str, Any], buffers: Sequence[bytes], max_bytes: int) -> Frame:
        self.writer.writelines(pack(header, buffers))
        await self.writer.drain()
        return await read_frame(self.reader, max_bytes + _HEADER_BYTES)

    def is_sound(self) -> bool:
        """Whether it can take a request: it is there and has sent nothing out of turn."""
        return not self.gone and not self.reader.at_eof() and self.reader.exception() is None

    def is_stopped(self) -> bool:
        """Whether a signal keeps the process from running. A request to it would wait until its deadline [20 µs]."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in "Tt"

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self.processes.workers.pop(self.number, None)
        self.writer.transport.abort()
        self.processes.send_order("kill", self.number)

    def slow_down(self) -> None:
        """Let the queries of others go first."""
        self.processes.send_order("slow", self.number)


class ForkServerGone(Exception):
    """The fork server ended; another one has to be started."""


class WorkerProcesses:
    """A running fork server and the workers it forked."""

    def __init__(self, config: dict[str, Any], tail_bytes: int, on_gone: Callable[[WorkerConnection], None]) -> None:
        self._config = config
        self._tail_bytes = tail_bytes
        self._on_gone = on_gone
        self._numbers = 0
        self._born: dict[int, asyncio.Future[int]] = {}
        self.workers: dict[int, WorkerConnection] = {}
        self.threads = 0
        self.ended = asyncio.Event()

    async def start(self) -> None:
        """Start the fork server and wait until everything is loaded. `Misconfigured` when that fails.

        It leaves nothing then. Cancelled half way, it leaves nothing either.
        """
        try:
            self._launch()
        except OSError as error:
            raise _not_started() from error
        try:
            self._sock.send(json.dumps(self._config).encode())
            async with asyncio.timeout(_AWAKE_SECONDS):
                self.threads = await self._awake
        except BaseException as error:
            self.end()
            if isinstance(error, TimeoutError | ForkServerGone | OSError):
                raise _not_started() from error
            raise

    def _launch(self) -> None:
        loop = asyncio.get_running_loop()
        self._awake: asyncio.Future[int] = loop.create_future()
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._sock.setblocking(False)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "frazil.serving.sql.worker.fork_server", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        except BaseException:
            # For want of processes or open files; they may be there again in a moment.
            self._sock.close()
            raise
        loop.add_reader(self._sock.fileno(), self._receive)

    async def spawn(self) -> WorkerConnection:
        """A new worker with its walls up. `ForkServerGone` or `TimeoutError` when there is none to be had."""
        if self.ended.is_set():
            raise ForkServerGone
        self._numbers += 1
        number = self._numbers
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        born: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._born[number] = born
        link: WorkerConnection | None = None
        try:
            with theirs:
                self.send_order("spawn", number, [theirs.fileno()])
            async with asyncio.timeout(_READY_SECONDS):
                pid = await born
                reader, writer = await asyncio.open_unix_connection(sock=ours)
                link = self.workers[number] = WorkerConnection(
                    self, number, pid, reader, writer, SentTails(self._tail_bytes)
                )
                link.walls = dict((await read_frame(reader, _HEADER_BYTES)).header["ready"])
                return link
        except BaseException:
            if link is not None:
                link.kill()
            else:
                ours.close()
                self.send_order("kill", number)
            raise
        finally:
            self._born.pop(number, None)

    def end(self) -> None:
        """End the fork server, and with it every worker."""
        if self.ended.is_set():
            return
        self.ended.set()
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._sock.close()
        self._process.kill()
        self._process.wait()
        for future in (self._awake, *self._born.values()):
            if not future.done():
                future.set_exception(ForkServerGone())
                # Nobody may be waiting any more.
                future.exception()
        for link in list(self.workers.values()):
            self._lost(link, "the fork server ended")

    def send_order(self, order: str, number: int, fds: Sequence[int] = ()) -> None:
        if self.ended.is_set():
            return
        try:
            socket.send_fds(self._sock, [json.dumps({"do": order, "number": number}).encode()], fds)
        except OSError as error:
            # It ended, or it does not listen any more, which comes to the same.
            _log.warning("fork server lost", extra={"error": str(error)})
            self.end()

    def _receive(self) -> None:
        while not self.ended.is_set():
            try:
                packet = self._sock.recv(_PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self.end()
                return
            self._handle(json.loads(packet))

    def _handle(self, event: dict[str, Any]) -> None:
        if "awake" in event:
            if not self._awake.done():
                self._awake.set_result(int(event["threads"]))
        elif "born" in event:
            born = self._born.get(int(event["born"]))
            if born is not None and not born.done():
                born.set_result(int(event["pid"]))
        elif (link := self.workers.get(int(event["gone"]))) is not None:
            self._lost(link, str(event["reason"]))

    def _lost(self, link: WorkerConnection, reason: str) -> None:
        self.workers.pop(link.number, None)
        link.gone = reason
        with contextlib.suppress(RuntimeError):
            link.writer.transport.abort()
        self._on_gone(link)


def _not_started() -> Misconfigured:
    return Misconfigured(
        "the query workers cannot be started", hint="look at the log; is DuckDB with its extensions installed?"
    )
