"""A Postgres to measure against: one that is started from the system's programs, or one that the caller names."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from benchmarks.processes import START_SECONDS, Child
from frazil.errors import Misconfigured, Unavailable
from frazil.runtime import free_port

_SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "256MB", "fsync": "off"}
"""Without fsync the table is filled sooner; reading it is the same."""
_USER = "frazil"


@dataclass(frozen=True)
class Database:
    host: str
    port: int
    user: str
    name: str
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"postgresql://{quote(self.user)}:{quote(self.password, safe='')}@{self.host}:{self.port}/{self.name}"

    def run(self, statement: str) -> None:
        """Run SQL with psql; what it answers goes nowhere."""
        done = subprocess.run(
            [program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._variables()},
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"psql failed: {done.stderr.strip()[:500]}")

    def _variables(self) -> dict[str, str]:
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": self.name,
        }


@contextmanager
def database(dsn_env: str | None) -> Iterator[Database]:
    """The database that the variable leads to, or a new one that is gone afterwards."""
    if dsn_env is None:
        with _started() as started:
            yield started
        return
    address = urlsplit(os.environ.get(dsn_env, ""))
    if not address.scheme.startswith("postgres") or not address.hostname or not address.username:
        raise Misconfigured(
            f"the variable {dsn_env} holds no address of a Postgres",
            code="bad_dsn",
            hint=f"set {dsn_env}=postgresql://user:password@host:5432/database",
        )
    yield Database(
        host=address.hostname,
        port=address.port or 5432,
        user=unquote(address.username),
        name=unquote(address.path.lstrip("/")) or unquote(address.username),
        password=unquote(address.password or ""),
    )


@contextmanager
def _started() -> Iterator[Database]:
    # As root, Postgres runs as another user, who may not enter our folder for temporary files, but its own home.
    folder = Path(tempfile.mkdtemp(prefix="frazil-bench-postgres-", dir=_home_of_owner()))
    folder.chmod(0o755)
    made = Database("127.0.0.1", free_port(), _USER, "postgres", secrets.token_hex(16))
    home, secret = folder / "home", folder / "password"
    try:
        home.mkdir(mode=0o700)
        secret.touch(mode=0o600)
        secret.write_text(f"{made.password}\n")
        for path in (home, secret):
            _hand_over(path)
        server = [program("postgres"), "-D", str(home / "data"), "-c", f"port={made.port}"]
        for name, value in _SETTINGS.items():
            server += ["-c", f"{name}={value}"]
        initdb = [program("initdb"), "--pgdata", str(home / "data"), "--username", _USER, "--pwfile", str(secret)]
        initdb += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"]
        done = subprocess.run(initdb, check=False, capture_output=True, text=True, user=_owner(), cwd=home)
        if done.returncode:
            raise Unavailable(f"initdb failed: {done.stderr.strip()[:500]}")
        with Child(server, folder, user=_owner()) as child:
            _wait_for(made, child)
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(made: Database, child: Child) -> None:
    check = [program("pg_isready"), "-q", "-h", made.host, "-p", str(made.port)]
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(check, check=False).returncode:
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise child.died()
        time.sleep(0.05)


def program(name: str) -> str:
    """Where the distribution keeps a program of Postgres, the newest version first."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*map(str, places), os.environ.get("PATH", "")]))
    if found is None:
        raise Unavailable(
            f"there is no {name} here", hint="install the package postgresql; or name a database with --dsn-env"
        )
    return found


def _owner() -> str | None:
    """As root Postgres refuses to run; its package brings a user for it."""
    return "postgres" if os.geteuid() == 0 else None


def _home_of_owner() -> str | None:
    owner = _owner()
    return pwd.getpwnam(owner).pw_dir if owner else None


def _hand_over(path: Path) -> None:
    owner = _owner()
    if owner:
        shutil.chown(path, owner, owner)
