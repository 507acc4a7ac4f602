"""The processes of a benchmark: the product in a folder of its own, and the programs that load or stand against it.

Settings of whoever runs the benchmark do not count: the figures are those of the defaults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.report import say
from frazil.bus import nats_server
from frazil.client import Client
from frazil.errors import Unavailable
from frazil.runtime import DataDir, SupervisedPart, free_port, of_run, supervised_parts
from frazil.settings import ServerSettings, Settings

START_SECONDS = 180.0
STOP_SECONDS = 60.0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone afterwards. `TMPDIR` decides on which disk it is measured."""
    with tempfile.TemporaryDirectory(prefix="frazil-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def settings_in(folder: Path) -> Settings:
    return Settings(data_dir=folder / "data", server=ServerSettings(port=free_port()))


class Child:
    """A child process in a session of its own, ended with its block. What it starts is its own to end."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        talks: bool = False,
        user: str | None = None,
    ) -> None:
        self._name = Path(command[0]).name if command[0] != sys.executable else " ".join(command[1:4])
        self._log = (folder / f"child-{time.monotonic_ns()}.log").open("wb")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAZIL_")}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, **(environment or {})},
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else self._log,
            stderr=self._log,
            start_new_session=True,
            user=user,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def tell(self) -> dict[str, Any]:
        """The next line that the child says, which is JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.died()
        said: dict[str, Any] = json.loads(line)
        return said

    def ask(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Say one line, and hear one."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self.died() from error
        return self.tell()

    def died(self) -> Unavailable:
        self._log.flush()
        last = Path(self._log.name).read_text(errors="replace").splitlines()[-20:]
        return Unavailable(f"{self._name} ended in the middle of the benchmark", details={"log": last})


def wait_for_part(part: SupervisedPart, child: Child) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (doing := part.probe(child.process.pid)) is not None:
        if child.process.poll() is not None or time.monotonic() > deadline:
            say(f"the {part.name} is still {doing}")
            raise child.died()
        time.sleep(0.02)


@contextmanager
def running_parts(settings: Settings, *names: str) -> Iterator[Mapping[str, str]]:
    """Some parts of the embedded product without the supervisor; yields the variables that lead to them."""
    data = DataDir(settings.data_dir)
    data.prepare()
    data.admin_token()
    parts, _ = supervised_parts(settings, data)
    wanted = [part for part in parts if part.name in names]
    started: list[Child] = []
    try:
        for part in wanted:
            child = Child(part.command, settings.data_dir, environment=part.environment).__enter__()
            started.append(child)
            wait_for_part(part, child)
        access = next(part.environment for part in parts if part.name == "gateway")
        yield {**access, **_credentials(data)}
    finally:
        for child in reversed(started):
            child.__exit__(None, None, None)


def _credentials(data: DataDir) -> dict[str, str]:
    return {f"FRAZIL_BUS__{key.upper()}": word for key, word in nats_server.credentials(data.bus).items()}


def configure(settings: Settings, text: str) -> None:
    """`up` finds its file in the folder in which it is started."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    (settings.data_dir / "frazil.toml").write_text(text)


@contextmanager
def running_product(settings: Settings) -> Iterator[Client]:
    """`frazil up` in its folder, until the pipeline is warm; yields a client."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "frazil", "up", "--json", "--data", str(settings.data_dir)]
    with Child([*command, "--port", str(settings.server.port)], settings.data_dir, talks=True) as child:
        child.tell()
        token = DataDir(settings.data_dir).read_token()
        with Client(settings.address, token) as client:
            deadline = time.monotonic() + START_SECONDS
            while client.health()["status"] != "ok":
                if child.process.poll() is not None or time.monotonic() > deadline:
                    raise child.died()
                time.sleep(0.1)
            yield client


def a_program(module: str, folder: Path, *, environment: Mapping[str, str] | None = None) -> Child:
    """One of the programs beside this file, to be asked line by line."""
    return Child([sys.executable, "-m", f"benchmarks.{module}"], folder, environment=environment, talks=True)


def processor_seconds(data: DataDir) -> Mapping[str, float]:
    """Processor seconds of the group that runs on this directory, its query workers apart from the rest."""
    seconds = {"workers": 0.0, "gateway": 0.0, "others": 0.0}
    tick = os.sysconf("SC_CLK_TCK")
    for identity in of_run(str(data.supervisor()["run_id"])):
        try:
            command = Path(f"/proc/{identity.pid}/cmdline").read_bytes()
            fields = Path(f"/proc/{identity.pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        part = "workers" if b"frazil.serving" in command else "gateway" if b"\0gateway\0" in command else "others"
        seconds[part] += (int(fields[11]) + int(fields[12])) / tick
    return seconds
