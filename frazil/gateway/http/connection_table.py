"""Connection table: which connections are open, from where, and which is closed when there are too many.

A connection that is in the middle of a request is never closed for another one. The others are candidates, in this
order: those that were refused and have not gone yet; those that never sent a whole request head, the oldest first;
those that are idle and never showed a token; those that are idle and did, after `_TOKEN_IDLE_SECONDS`. The oldest and
not the newest, so that under a flood of n connections a second a newcomer has (connections / n) seconds to send its
first request, however far away it is.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

_TOKEN_IDLE_SECONDS = 5.0
"""A client with a token that was idle for less is between two requests."""
_ADDRESS_SHARE = 0.8
"""One address never has more than this share of all connections, whatever is set."""
_NETWORK_BITS = 64
"""What one host of IPv6 has to choose its addresses from."""


class Sheddable(Protocol):
    def shed(self) -> None:
        """Close the connection: its place is needed."""


C = TypeVar("C", bound=Sheddable)


class Idle(IntEnum):
    """Why a connection may be closed, in the order in which they are."""

    REFUSED = 0
    NO_REQUEST = 1
    NO_TOKEN = 2
    TOKEN = 3


@dataclass
class _Address(Generic[C]):
    open: int = 0
    idle: tuple[dict[C, float], ...] = field(default_factory=lambda: ({}, {}, {}, {}))
    """By `Idle`: since when, the longest first."""

    def candidate(self, now: float) -> C | None:
        for kind in Idle:
            for connection, since in self.idle[kind].items():
                if kind is Idle.TOKEN and now - since < _TOKEN_IDLE_SECONDS:
                    break
                return connection
        return None


class ConnectionTable(Generic[C]):
    def __init__(self, max_connections: int, max_per_address: int) -> None:
        self.max_connections = max_connections
        self.max_per_address = max(1, min(max_per_address, int(max_connections * _ADDRESS_SHARE)))
        self.now = time.monotonic()
        """The time of the last check of all connections, which is exact enough for limits of seconds."""
        self._addresses: dict[str, _Address[C]] = {}
        self._entries: dict[C, tuple[str, Idle | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def connections(self) -> list[C]:
        return list(self._entries)

    def admit(self, connection: C, address: str) -> bool:
        """Enter a new connection, and close another one for it where that is needed; False when none can be."""
        key = _network(address)
        own = self._addresses.get(key) or _Address()
        if own.open >= self.max_per_address:
            victim = own.candidate(self.now)
        elif len(self._entries) >= self.max_connections:
            victim = self._greediest_candidate(own.open)
        else:
            victim = None
            self._enter(connection, key, own)
            return True
        if victim is None:
            return False
        self.busy(victim)  # nobody closes it twice
        self._enter(connection, key, own)
        victim.shed()
        return True

    def _greediest_candidate(self, least_open: int) -> C | None:
        """A candidate of the address with the most connections, and of none that has fewer than the newcomer's."""
        greedy = [address for address in self._addresses.values() if address.open >= least_open]
        for address in sorted(greedy, key=lambda address: address.open, reverse=True):
            if (found := address.candidate(self.now)) is not None:
                return found
        return None

    def _enter(self, connection: C, key: str, own: _Address[C]) -> None:
        self._addresses[key] = own
        own.open += 1
        own.idle[Idle.NO_REQUEST][connection] = self.now
        self._entries[connection] = (key, Idle.NO_REQUEST)

    def busy(self, connection: C) -> None:
        """A request of it is being served."""
        self._move(connection, None)

    def idle(self, connection: C, kind: Idle) -> None:
        """Nothing of it is being served."""
        self._move(connection, kind)

    def _move(self, connection: C, kind: Idle | None) -> None:
        entry = self._entries.get(connection)
        if entry is None:
            return
        key, before = entry
        if before is kind:
            return
        if before is not None:
            del self._addresses[key].idle[before][connection]
        if kind is not None:
            self._addresses[key].idle[kind][connection] = self.now
        self._entries[connection] = (key, kind)

    def leave(self, connection: C) -> None:
        self._move(connection, None)
        entry = self._entries.pop(connection, None)
        if entry is not None:
            address = self._addresses[entry[0]]
            address.open -= 1
            if not address.open:
                del self._addresses[entry[0]]


def _network(address: str) -> str:
    """The address, or for IPv6 the network that one host may choose its addresses from."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _NETWORK_BITS), strict=False))
