"""The data directory: what is where in it, who may use it, and whether it is fit to start on."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.errors import Conflict, Misconfigured, Unavailable
from frazil.storage import read_private

TOKEN = re.compile(r"frz_[A-Za-z0-9_-]{43,}\Z")


@dataclass(frozen=True)
class DataDir:
    root: Path

    @property
    def token_file(self) -> Path:
        return self.root / "admin.token"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def bus(self) -> Path:
        return self.root / "bus"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def supervisor_file(self) -> Path:
        return self.run / "supervisor.json"

    @property
    def pipeline_file(self) -> Path:
        return self.run / "pipeline.json"

    @property
    def suspects_file(self) -> Path:
        """The tables that the pipeline holds back after its engine was lost."""
        return self.run / "suspects.json"

    @property
    def publish(self) -> Path:
        """How far resumable publishes came."""
        return self.root / "publish"

    @property
    def scratch(self) -> Path:
        """Temporary files of the pipeline's processes."""
        return self.root / "tmp"

    @property
    def reports(self) -> Path:
        """Reports of nightly archives."""
        return self.root / "reports"

    @property
    def uploads(self) -> Path:
        """Files that wait for their load."""
        return self.root / "uploads"

    @property
    def artifacts(self) -> Path:
        """Copies of the artifacts that this machine serves."""
        return self.root / "artifacts"

    @property
    def builds(self) -> Path:
        """Where artifacts are built before they go to the bucket."""
        return self.root / "builds"

    @property
    def spill(self) -> Path:
        """What does not fit into memory and is worth nothing after the process ends."""
        return self.root / "spill"

    @property
    def audit(self) -> Path:
        """The audit log; never rewritten, never removed by frazil."""
        return self.root / "audit"

    def prepare(self) -> None:
        """Make the directory where it is missing, for its owner only, and see that it can be written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.logs, self.run, self.spill, self.uploads, self.artifacts):
                folder.mkdir(exist_ok=True, mode=0o700)
            probe = self.run / f".probe.{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise Misconfigured(
                f"the data directory {self.root} cannot be written to: {error.strerror}",
                code="data_dir_not_writable",
                hint=f"choose another with --data, or give yourself the right: chown -R $USER {self.root}",
            ) from error

    def supervisor(self) -> dict[str, Any]:
        """What the supervisor of this directory last wrote about itself; empty if there never was one."""
        return read_json(self.supervisor_file)

    def lock(self) -> Lock:
        """Make this process the only one that runs on the directory, or raise `Conflict` naming the other.

        The operating system lets go of the lock when the process ends, however it ends.
        """
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        for patience in (0.05, 0.1, 0.2, 0.0):  # `frazil status` looks whether it is locked, for a moment
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return Lock(descriptor)
            except OSError:
                time.sleep(patience)
        os.close(descriptor)
        other = self.supervisor()
        raise Conflict(
            f"frazil is already running on {self.root}: process {other.get('pid', '?')}, {other.get('url', '?')}",
            code="already_running",
            hint=f"use that one (frazil status --data {self.root}), stop it with kill {other.get('pid', 'PID')}, "
            "or choose another directory with --data",
            details={"pid": other.get("pid"), "url": other.get("url")},
        )

    def is_locked(self) -> bool:
        """Whether a supervisor is running on the directory."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def admin_token(self) -> str:
        """The admin token, made up at the first call and kept as the only line of a file of mode 0600."""
        if not self.token_file.exists():
            write_private(self.token_file, f"frz_{secrets.token_urlsafe(32)}\n")
        return self.read_token()

    def read_token(self) -> str:
        path = self.token_file
        try:
            token = read_private(path, "the admin token").strip()
        except Misconfigured as error:
            if error.code == "secret_file_mode":
                raise Misconfigured(error.message, code="token_mode", hint=error.hint) from None
            raise Misconfigured(
                error.message,
                code="token_unreadable",
                hint="run as the user who started frazil, or set FRAZIL_TOKEN",
            ) from None
        if not TOKEN.match(token):
            raise Misconfigured(
                f"the token file {path} is damaged: it must have one line that begins with frz_",
                code="token_damaged",
                hint="put the file back, or remove it: the next `frazil up` makes a new token and the old one ends",
            )
        return token


class Lock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def check_disk(path: Path, min_free_bytes: int) -> int:
    """How many bytes are free there, or `Misconfigured` if too few."""
    free = shutil.disk_usage(path).free
    if free < min_free_bytes:
        raise Misconfigured(
            f"only {free / 1e6:,.0f} MB are free in {path}, frazil wants {min_free_bytes / 1e6:,.0f} MB",
            code="disk_full",
            hint="make room, choose another directory with --data, or lower min_free_bytes",
        )
    return free


def check_catalog(path: Path) -> None:
    """See that an SQLite catalog, if there is one, can be read from its first page to its last."""
    if not path.exists():
        return
    if path.stat().st_size == 0 and any(path.parent.glob("warehouse/*/*")):
        raise _damaged(path, "it is empty, and there are table files")
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=5)
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Unavailable(
                f"another program keeps the catalog {path} locked",
                code="catalog_locked",
                hint=f"find it with: fuser -v {path}",
            ) from error
        raise _damaged(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error
    finally:
        if connection is not None:
            connection.close()
    if answer is None or answer[0] != "ok":
        raise _damaged(path, answer[0] if answer else "no answer")


def _damaged(path: Path, reason: str) -> Misconfigured:
    return Misconfigured(
        f"the catalog {path} is damaged: {reason}",
        code="catalog_damaged",
        hint=f"put back a copy of {path.name} from a backup, or save what can be read: "
        f"sqlite3 {path} .recover | sqlite3 {path}.new && mv {path}.new {path} "
        "(the table files in the warehouse are not touched by any of this); "
        "or move it away and run `frazil catalog repair`, which finds the tables in the warehouse",
    )


def write_private(path: Path, text: str) -> None:
    """Replace a file of mode 0600 in one step: a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_private(path, json.dumps(content) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty if there is no file or it is no object."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
