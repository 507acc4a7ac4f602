"""Machine checks: Java for Spark, and free ports."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from frazil.errors import Conflict, Misconfigured

JAVA_AT_LEAST = 17


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The java that Spark will start: of JAVA_HOME if that is set, else of the PATH."""
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        return java if os.access(java, os.X_OK) else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def check_java(environment: Mapping[str, str]) -> str:
    """The version of Java, or `Misconfigured` if there is none or it is too old for Spark."""
    hint = (
        f"install Java {JAVA_AT_LEAST}, for example: apt-get install openjdk-{JAVA_AT_LEAST}-jre-headless; "
        "or set JAVA_HOME to one"
    )
    java = find_java(environment)
    if java is None:
        where = f"JAVA_HOME={environment['JAVA_HOME']}" if environment.get("JAVA_HOME") else "the PATH"
        raise Misconfigured(f"there is no Java: looked at {where}", code="java_missing", hint=hint)
    version = _release_file(java) or _ask(java)
    if version is None:
        raise Misconfigured(f"{java} does not say its version", code="java_broken", hint=hint)
    if _major(version) < JAVA_AT_LEAST:
        raise Misconfigured(
            f"{java} is Java {version}, Spark needs {JAVA_AT_LEAST} or newer", code="java_too_old", hint=hint
        )
    return version


def _release_file(java: Path) -> str | None:
    """Read rather than asked: starting a JVM for its version would cost a tenth of the time to the first event."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r'^JAVA_VERSION="([0-9][^"]*)"', text, re.MULTILINE)
    return match[1] if match else None


def _ask(java: Path) -> str | None:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([0-9][^"]*)"', answer.stderr + answer.stdout)
    return match[1] if match else None


def _major(version: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def check_port(host: str, port: int) -> None:
    """See that nobody listens there yet; raises `Conflict` or, for an address that is not ours, `Misconfigured`."""
    try:
        with closing(_bound(host, port)):
            return
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == 99:
            raise Misconfigured(
                f"{host} is not an address of this machine", code="bad_host", hint="set server.host, default 127.0.0.1"
            ) from error
        if error.errno == 13:
            raise Misconfigured(
                f"you may not listen on port {port}", code="port_forbidden", hint="choose one above 1023 with --port"
            ) from error
        raise Conflict(
            f"port {port} on {host} is taken by another program",
            code="port_taken",
            hint=f"choose another with --port, or find the program with: ss -ltnp 'sport = :{port}'",
        ) from error


def free_port(preferred: int = 0) -> int:
    """A loopback port nobody listens on: the preferred one if it is free."""
    try:
        with closing(_bound("127.0.0.1", preferred)) as taken:
            return int(taken.getsockname()[1])
    except OSError:
        with closing(_bound("127.0.0.1", 0)) as taken:
            return int(taken.getsockname()[1])


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
