"""The real product as processes that can be killed, paused and started again: `frazil up`, or its parts one by one.

Whatever a test starts carries a mark in its environment, and all that carry it are ended with the test: the parts, the
JVM behind the pipeline, and what a killed supervisor left behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.contract.servers import NatsServer
from tests.ports import free_port
from tests.processes import children, is_running, signal_to
from tests.quick_jvm import QUICK_JVM

_T = TypeVar("_T")
_P = TypeVar("_P", bound="Product")
_MARK = "TEST_PRODUCT"
ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 240.0
"""A bound against hanging on a busy machine, not a measurement."""


def eventually(look: Callable[[], _T], *, what: str, seconds: float = PATIENCE_SECONDS, every: float = 0.05) -> _T:
    """What `look` returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came about: {what}"
        time.sleep(every)
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Product:
    """One data directory and everything that runs on it."""

    def __init__(self, data: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.port, self._bus_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = data.with_name(f"{data.name}.log")
        self.trace = data.with_name(f"{data.name}.trace")
        self._scratch = data.with_name(f"{data.name}.tmp")
        for folder in (self.trace, self._scratch):
            folder.mkdir(parents=True, exist_ok=True)
        self._mark = uuid.uuid4().hex
        self._environment = dict(environment or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self._up: subprocess.Popen[bytes] | None = None
        # One client, since each takes 36 ms of the processor to make and the product is looked at many times a second;
        # and a connection a question, since those who answer come and go.
        alone = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(timeout=60, trust_env=False, limits=alone)

    # --- processes ----------------------------------------------------------------------------------------------------

    def run(self, *words: str, module: str = "frazil", **environment: str) -> subprocess.Popen[bytes]:
        """Start `frazil …`, or another module, in a process group of its own."""
        log = self.output.with_suffix(f".{len(self._processes)}.out")
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._variables(environment),
                cwd=self.data.parent,
                start_new_session=True,
            )
        self._processes.append(process)
        self._logs[process.pid] = log
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """All that a process started here has written so far."""
        return self._logs[process.pid].read_text(errors="replace")

    def cli(self, *words: str, seconds: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command of the CLI on this data directory to its end."""
        return subprocess.run(
            [sys.executable, "-m", "frazil", *words, "--data", str(self.data)],
            env=self._variables({}),
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _variables(self, more: Mapping[str, str]) -> dict[str, str]:
        ours = {
            _MARK: self._mark,
            "FRAZIL_CRASH_TRACE": str(self.trace),
            "FRAZIL_SERVER__PORT": str(self.port),
            "FRAZIL_BUS__PORT": str(self._bus_port),
            "PYTHONPATH": str(ROOT),
            "FRAZIL_PIPELINE__SPARK_CONF": json.dumps(QUICK_JVM),
            # A killed JVM leaves its copies of the jars behind; here they go with the test's folder.
            "TMPDIR": str(self._scratch),
            "SPARK_LOCAL_DIRS": str(self._scratch),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={self._scratch}",
        }
        return {**os.environ, **ours, **self._environment, **more}

    def up(self, *, wait: bool = True, **environment: str) -> None:
        """`frazil up`, if it does not run; returns when events are accepted."""
        if self._up is None or self._up.poll() is not None:
            self._up = self.run("up", "--data", str(self.data), "--port", str(self.port), **environment)
        if wait:
            self.until_accepting()

    @property
    def supervisor_pid(self) -> int:
        assert self._up is not None
        return self._up.pid

    def is_up(self) -> bool:
        return self._up is not None and self._up.poll() is None

    def stop(self) -> int:
        """Stop in good order, as Ctrl-C does."""
        assert self._up is not None
        self._up.send_signal(signal.SIGINT)
        return self._up.wait(PATIENCE_SECONDS)

    def part(self, name: str) -> int:
        """The process of a part as it is now; `jvm` is the pipeline's Java."""
        if name == "supervisor":
            return self.supervisor_pid

        def look() -> int | None:
            if name == "jvm":
                of_pipeline = self._recorded("pipeline")
                found = children(of_pipeline) if of_pipeline else []
                return next((pid for pid in found if "java" in command_of(pid).split(" ")[0]), None)
            pid = self._recorded(name)
            return pid if pid and is_running(pid) else None

        return eventually(look, what=f"a process of {name}") or 0

    def _recorded(self, name: str) -> int | None:
        try:
            found: int | None = json.loads((self.data / "run" / "supervisor.json").read_text())["parts"][name]["pid"]
        except (OSError, ValueError, KeyError):
            return None
        return found

    def kill(self, name: str) -> int:
        """kill -9 of one part, whatever it is doing."""
        pid = self.part(name)
        signal_to(pid, signal.SIGKILL)
        eventually(lambda: not is_running(pid), what=f"the end of {name}")
        if self._up is not None and name == "supervisor":
            self._up.wait(PATIENCE_SECONDS)
        return pid

    def everything(self) -> list[int]:
        """All processes that came from here."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if marked and is_running(int(entry.name)):
                found.append(int(entry.name))
        return found

    def kill_everything(self) -> None:
        """As a power cut of the processes: all of them, and whatever they started meanwhile."""

        def all_gone() -> bool:
            for pid in self.everything():
                signal_to(pid, signal.SIGKILL)
            return not self.everything()

        eventually(all_gone, what="the end of everything", seconds=30)
        for process in self._processes:
            process.wait(30)

    # --- what it says -------------------------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self._http.request(method, f"{self.url}{path}", json=body, headers=headers)

    def health(self) -> dict[str, Any]:
        """What health tells an admin; empty when nobody answers."""
        try:
            headers = {"Authorization": f"Bearer {self.token}"}
            answer = self._http.get(f"{self.url}/v1/health", headers=headers, timeout=10)
        except (httpx.HTTPError, OSError):
            return {}
        body: dict[str, Any] = answer.json()
        return body

    def status(self) -> dict[str, Any]:
        try:
            answer = self.ask("GET", "/v1/status")
        except (httpx.HTTPError, OSError):
            return {}
        body: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return body

    def until_accepting(self) -> None:
        """Until the gateway answers and has a bus; the pipeline may still be warming."""

        def accepting() -> bool:
            assert self._up is None or self._up.poll() is None, f"frazil up ended:\n{self.said(self._up)[-3000:]}"
            return bool(self.health().get("parts", {}).get("bus", {}).get("status") == "ok")

        eventually(accepting, what="a gateway with a bus")

    def until_status(self, wanted: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found = self.health()
            return found if found.get("status") == wanted else None

        try:
            return eventually(reached, what=f"the status {wanted}", every=0.2) or {}
        except AssertionError as error:
            raise AssertionError(f"{error}; the last words were {self.health()}\n{self.words()}") from error

    def until_part(self, name: str, *wanted: str) -> None:
        """Until the health answer says this of one part."""
        eventually(
            lambda: self.health().get("parts", {}).get(name, {}).get("status") in wanted,
            what=f"{name} being told as {' or '.join(wanted)}",
            every=0.2,
        )

    def until_drained(self, *tables: str) -> None:
        """Until everything that the bus holds of these tables is committed."""

        def drained() -> bool:
            told = self.status().get("tables", {})
            return all(told.get(table, {}).get("lag", {}).get("events") == 0 for table in tables)

        try:
            eventually(drained, what=f"{tables} drained", every=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last words were {self.status()}\n{self.words()}") from error

    def declare(self, table: str, columns: Mapping[str, str], **more: Any) -> None:
        def declared() -> bool:
            try:
                answer = self.ask("POST", "/v1/tables", {"name": table, "columns": dict(columns), **more})
            except httpx.HTTPError:
                return False
            assert answer.status_code in (200, 201, 503), answer.text
            return answer.status_code != 503

        eventually(declared, what=f"the declaration of {table}", every=0.3)

    def words(self) -> str:
        """The ends of all logs, for the one who reads a failed test."""
        texts = [*self._logs.values(), *sorted((self.data / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in texts if path.exists()
        )


class Parts(Product):
    """The parts started one by one, without a supervisor: a bus of the test's own, a gateway, pipelines."""

    def __init__(self, data: Path, bus: Mapping[str, str], *, environment: Mapping[str, str] | None = None) -> None:
        self.bus = bus
        super().__init__(data, environment={**bus, "FRAZIL_DATA_DIR": str(data), **(environment or {})})

    def gateway(self, *, wait: bool = True, **environment: str) -> subprocess.Popen[bytes]:
        process = self.run("serve", "gateway", **environment)
        if wait:
            self.until_accepting()
        return process

    def pipeline(self, **environment: str) -> subprocess.Popen[bytes]:
        """Starts; `until_ready` waits for Spark to be warm."""
        return self.run("serve", "pipeline", **environment)

    def until_ready(self, pipeline: subprocess.Popen[bytes]) -> None:
        report = self.data / "run" / "pipeline.json"

        def ready() -> bool:
            assert pipeline.poll() is None, f"the pipeline ended:\n{self.words()}"
            try:
                said = json.loads(report.read_text())
            except (OSError, ValueError):
                return False
            return bool(said["pid"] == pipeline.pid and said["state"] not in ("starting", "warming"))

        eventually(ready, what="a warm pipeline", every=0.1)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of one part and of its JVM, as a supervisor would after it."""
        below = children(process.pid)
        for pid in (process.pid, *below):
            signal_to(pid, signal.SIGKILL)
        process.wait(30)
        eventually(lambda: not any(is_running(pid) for pid in below), what="the end of a part's children")


@contextmanager
def running(product: _P) -> Iterator[_P]:
    """The product, and its end at the end, however the test ends."""
    try:
        yield product
    except BaseException:
        print(product.words())  # the folder is gone when the failure is read
        raise
    finally:
        product.kill_everything()


@contextmanager
def new_folder(name: str) -> Iterator[Path]:
    """A folder with a short path: a data directory holds sockets and long table paths."""
    with tempfile.TemporaryDirectory(prefix=f"frazil-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def nats_access(server: NatsServer) -> dict[str, str]:
    """The variables with which a part enters this server."""
    words = {f"FRAZIL_BUS__{key.upper()}": word for key, word in server.credentials.items()}
    return {"FRAZIL_BUS__URL": server.url, **words}
