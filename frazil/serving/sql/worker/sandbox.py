"""Sandbox (the first wall): what the operating system lets a worker do, whatever its code has become.

Each function puts up one part and can be tested alone. They are called by a process of one thread, right after its
fork: Landlock, capabilities and the filter of system calls hold for the calling thread and for those it starts later.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from frazil.serving.sql.worker import seccomp

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_BENEATH, _NET_PORT = 1, 2
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_RIGHTS = 16
_OPEN_FILES = 256
_TRY_SECONDS = 60.0
_TRIED = """
import json, os
from frazil.serving.sql.worker.sandbox import SandboxRules, enter_sandbox
os.write(1, json.dumps(enter_sandbox(SandboxRules())).encode())
os._exit(0)
"""
_CAP_DAC_READ_SEARCH = 1 << 2
_CAPSET = {"x86_64": 126, "aarch64": 91}


@dataclass(frozen=True)
class SandboxRules:
    """What stays open in the walls."""

    readable: Sequence[str] = ()
    """Folders and files that may be read."""
    port: int | None = None
    """The object store's port; None refuses every socket."""
    names: bool = False
    """Whether the store is known by a name, so that DNS is needed."""
    listen: int | None = None
    """A port that may be listened on."""


def hide_memory() -> None:
    """No core file, and no other process of the same user may look inside."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class MemoryLimit:
    """The address space of this process. Made before Landlock stands, which hides /proc."""

    def __init__(self) -> None:
        self._sizes = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._limit = 0

    def used(self) -> int:
        return int(os.pread(self._sizes, 256, 0).split()[0]) * resource.getpagesize()

    def put_up(self, more_bytes: int) -> None:
        """Allow this much beyond what is used now."""
        self._limit = self.used() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (self._limit, self._limit))

    def left(self) -> int:
        return self._limit - self.used()


def limit_files() -> None:
    """No file can grow, and only a few can be open."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


def limit_cpu(more_seconds: float) -> None:
    """The process is ended when it has used this much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime + more_seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def drop_capabilities() -> None:
    """Root loses its powers, but for reading what belongs to others (Landlock limits where)."""
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    kept = _CAP_DAC_READ_SEARCH if _effective() & _CAP_DAC_READ_SEARCH else 0
    sets = ctypes.create_string_buffer(struct.pack("6I", kept, kept, 0, 0, 0, 0))
    if _libc().syscall(_CAPSET[platform.machine()], header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _effective() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def landlock_abi() -> int:
    """The version of Landlock in this kernel, 0 without."""
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def confine(rules: SandboxRules) -> int:
    """Landlock: read beneath the given paths, use the given ports, nothing else. Returns the kernel's version."""
    abi = landlock_abi()
    if abi == 0:
        raise OSError("this kernel has no Landlock")
    fs = (1 << _RIGHTS_BY_ABI.get(abi, _ALL_RIGHTS)) - 1
    # Files; binding and connecting (since 4); abstract sockets and signals beyond this process (since 6).
    parts = [fs] + ([0b11] if abi >= 4 else []) + ([0b11] if abi >= 6 else [])
    attributes = struct.pack(f"{len(parts)}Q", *parts)
    ruleset = _landlock(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in rules.readable:
            _allow_reading(ruleset, path)
        if abi >= 4 and rules.port is not None:
            _allow_port(ruleset, _CONNECT_TCP, rules.port)
        if abi >= 4 and rules.listen is not None:
            _allow_port(ruleset, _BIND_TCP, rules.listen)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        _landlock(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _allow_port(ruleset: int, rights: int, port: int) -> None:
    _landlock(_ADD_RULE, ruleset, _NET_PORT, struct.pack("QQ", rights, port), 0)


def _allow_reading(ruleset: int, path: str) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        _landlock(_ADD_RULE, ruleset, _BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _landlock(number: int, *arguments: object) -> int:
    answer = int(_libc().syscall(number, *arguments))
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock call {number}: {os.strerror(ctypes.get_errno())}")
    return answer


def enter_sandbox(rules: SandboxRules) -> dict[str, str]:
    """Put up every part that this kernel has; for each "up", or why it is missing."""
    hide_memory()
    limit_files()
    uses_sockets = rules.port is not None or rules.listen is not None
    standing = {"limits": "up"}
    for name, put_up in (
        # Before Landlock: it reads /proc.
        ("capabilities", drop_capabilities),
        ("landlock", lambda: confine(rules)),
        ("seccomp", lambda: seccomp.install(sockets=uses_sockets, datagrams=rules.names)),
    ):
        try:
            found = put_up()
            standing[name] = "up" if found is None else f"up (version {found})"
        except (OSError, KeyError) as error:
            standing[name] = f"missing: {error}"
    return standing


def kernel_support() -> dict[str, str]:
    """The result of `enter_sandbox` here, tried by a process that ends at once.

    One of its own, not a fork: the caller may have threads, and what they hold is held for ever in a fork.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIED], capture_output=True, timeout=_TRY_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"limits": "missing: the process that tried them hangs"}
    standing: dict[str, str] = json.loads(done.stdout or b"{}")
    return standing or {"limits": "missing: the process that tried them ended"}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
