"""Ports for the servers of tests, each given to one server of one process of tests.

A port that the kernel names and that is let go again may be gone before the server has it: to another process of tests,
or to any connection, which takes its own port out of the same range. So each process keeps a block of ports below that
range for itself, by listening on the first one of it; a killed server finds its port free when it comes back.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 250
_FIRST = 10_000
_held: list[socket.socket] = []


def free_port() -> int:
    """Free, and of no other server until this process has asked for some hundred more."""
    return next(_ports)


def _given() -> Iterator[int]:
    first = _own_block()
    for port in itertools.cycle(range(first + 1, first + _BLOCK)):
        if (probe := _bound(port)) is not None:
            probe.close()
            yield port


def _own_block() -> int:
    for first in range(_FIRST, _end() - _BLOCK, _BLOCK):
        if (holder := _bound(first)) is not None:
            holder.listen()
            _held.append(holder)
            return first
    raise AssertionError("no block of ports is free: too many tests run on this machine")


def _end() -> int:
    """Where the ports of outgoing connections begin."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def _bound(port: int) -> socket.socket | None:
    """As servers bind it: what an earlier connection left behind does not count."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()
    except OSError:
        made.close()
        return None
    return made


_ports = _given()
