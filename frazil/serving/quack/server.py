"""Quack server: the parent of a quack worker, which starts it and ends it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from frazil.errors import Misconfigured, Unavailable
from frazil.serving.sql.worker_processes import child_environment

_READY_SECONDS = 60.0
_STOP_SECONDS = 5.0


class QuackServer:
    """One database file, served on a port of this machine's loopback until `close`.

    Raises `Misconfigured` if this kernel lacks a part of the sandbox: without all of them nothing is served.
    """

    def __init__(self, file: Path, *, port: int, token: str, memory_bytes: int = 1 << 30, threads: int = 2) -> None:
        self.port = port
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "frazil.serving.quack.worker"],
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        order = {"file": str(file), "port": port, "token": token, "memory_bytes": memory_bytes, "threads": threads}
        try:
            report = self._start(json.dumps(order).encode() + b"\n")
            if "failed" in report:
                raise Unavailable(f"the artifact cannot be served: {report['failed']}", code="quack_failed")
            missing = {name: why for name, why in report["walls"].items() if not why.startswith("up")}
            if missing:
                raise Misconfigured(
                    "parts of the sandbox are missing: "
                    + ", ".join(f"{name} ({why})" for name, why in missing.items()),
                    code="walls_missing",
                    hint="quack needs a kernel with Landlock 4 (Linux 6.7) or newer; use POST /v1/query instead",
                )
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it; whoever is connected is cut off."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait(_STOP_SECONDS)
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> QuackServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, order: bytes) -> dict[str, dict[str, str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(order)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Unavailable("the worker ended before it served", code="quack_failed") from None
        ready, _, _ = select.select([self._process.stdout], [], [], _READY_SECONDS)
        line = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
        if not line:
            raise Unavailable("the worker did not begin to serve", code="quack_failed", hint="try again")
        report: dict[str, dict[str, str]] = json.loads(line)
        return report
