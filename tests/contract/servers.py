"""Real servers for tests: a NATS server and a Postgres, on loopback, in a directory of their own, ended by pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from frazil.bus import nats_server
from tests.ports import free_port
from tests.processes import children, go_on, is_running, signal_to, stop

START_SECONDS = 120.0


class ServerDidNotStart(AssertionError):
    """With the end of its log."""


class Server:
    """A child process that can be killed, paused and started again on the same directory."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    url: str
    credentials: Mapping[str, str]

    def command(self) -> list[str]:
        raise AssertionError("each server has its own")

    def user(self) -> str | None:
        return None

    def ready(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None, "it runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user(),
                cwd=self.directory,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerDidNotStart(f"the server did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is None:
            return
        pids = [self._process.pid, *children(self._process.pid)]
        for pid in pids:
            signal_to(pid, signal.SIGKILL)
        self._process.wait(START_SECONDS)
        self._process = None
        deadline = time.monotonic() + START_SECONDS
        while any(is_running(pid) for pid in pids[1:]) and time.monotonic() < deadline:
            time.sleep(0.01)

    def pause(self) -> None:
        """Back when it stands still. The parent first: it makes no more children then."""
        stop(self.pid)
        for child in children(self.pid):
            stop(child)

    def resume(self) -> None:
        for pid in (*children(self.pid), self.pid):
            go_on(pid)


class NatsServer(Server):
    """frazil's own NATS server; `edit` changes its configuration, to see what happens with a bad one."""

    def __init__(
        self,
        directory: Path,
        *,
        max_file_store_bytes: int = 8 << 30,
        edit: Callable[[str], str] = lambda text: text,
    ) -> None:
        super().__init__(directory, free_port())
        self.config = nats_server.write_config(directory, self.port, max_file_store_bytes=max_file_store_bytes)
        self.config.write_text(edit(self.config.read_text()))
        self.url = f"nats://127.0.0.1:{self.port}"
        self.credentials = nats_server.credentials(directory)

    def command(self) -> list[str]:
        return nats_server.command(self.config)


class PostgresServer(Server):
    """A Postgres of the Debian package `postgresql`. As root it runs as the user `postgres`, which it insists on."""

    def __init__(self, directory: Path, *, options: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, free_port())
        self.credentials = {"user": "frazil", "password": "not-a-secret"}
        self.url = f"postgresql://127.0.0.1:{self.port}/postgres"
        self._options = options or {}
        self._data = directory / "data"

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # in its own directory: a killed server leaves nothing in /dev/shm
            **self._options,
        }
        arguments = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(postgres_binaries() / "postgres"), "-D", str(self._data), *arguments]

    def user(self) -> str | None:
        return "postgres" if os.geteuid() == 0 else None

    def ready(self) -> bool:
        check = [str(postgres_binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(check, check=False).returncode == 0

    def initialise(self) -> None:
        own(self.directory)
        secret = self.directory / "password"
        secret.write_text(self.credentials["password"] + "\n")
        own(secret)
        subprocess.run(
            [
                str(postgres_binaries() / "initdb"),
                *("--pgdata", str(self._data), "--username", self.credentials["user"], "--pwfile", str(secret)),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"),
            ],
            check=True,
            capture_output=True,
            user=self.user(),
            cwd=self.directory,
        )


def postgres_binaries() -> Path:
    """Where the distribution keeps the server's programs, the newest version first."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        places.insert(0, Path(found).resolve().parent)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise AssertionError("there is no Postgres server here: apt-get install -y postgresql")


def own(path: Path) -> None:
    """Give a path to the user that Postgres runs as."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam("postgres")
        os.chown(path, entry.pw_uid, entry.pw_gid)


@contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    """A short path that other users can reach; pytest's own temporary directories are closed to them."""
    directory = Path(tempfile.mkdtemp(prefix=f"frazil-{name}-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running_nats(
    *, max_file_store_bytes: int = 8 << 30, edit: Callable[[str], str] = lambda text: text
) -> Iterator[NatsServer]:
    with scratch_directory("nats") as directory:
        server = NatsServer(directory, max_file_store_bytes=max_file_store_bytes, edit=edit)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def running_postgres(*, options: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    with scratch_directory("postgres") as directory:
        server = PostgresServer(directory, options=options)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.kill()
