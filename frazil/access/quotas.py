"""Quotas: how many requests, waits and bytes one token, and all tokens together, may have in flight.

A `QuotaPlace` is what one request holds: itself, at most one wait, and the memory of its body. Everything is taken
through a context manager and is given back when that is left; what a place still holds when its request ends goes with
it. So no cancellation, wherever it falls, leaves anything behind.

Admins have no quota per token. A reserve of each kind is for admins only, so that they can work while all other places
are taken.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from frazil.access.identity import Identity
from frazil.access.settings import AccessSettings
from frazil.errors import TooLarge, Unavailable

Kind = Literal["requests", "waits", "bytes"]
KINDS: tuple[Kind, ...] = ("requests", "waits", "bytes")
# Waits together take at most this part of the places for requests: the rest is for those that work.
_WAITS_SHARE = 0.5
# This part of the memory is for admins.
_ADMIN_MEMORY_SHARE = 0.125


class QuotaExceeded(Unavailable):
    """One token has as much in flight as it may have."""

    code = "too_many_requests_in_flight"
    status = 429


_CODES: dict[Kind, str] = {
    "requests": "too_many_requests_in_flight",
    "waits": "too_many_waits",
    "bytes": "too_many_bytes_in_flight",
}
_HINTS: dict[Kind, str] = {
    "requests": "wait for an answer before you send the next request",
    "waits": "send the request without a wait, or send fewer requests with a wait at once",
    "bytes": "send smaller requests, or fewer requests at once",
}


@dataclass(frozen=True)
class Limit:
    """How much of one kind may be in flight."""

    total: int
    """For all callers that are not admins, together."""
    per_token: int
    """For one token that is not an admin token."""
    with_admins: int
    """For all callers together."""


class _Ledger:
    """What is in flight of one kind."""

    def __init__(self, kind: Kind, limit: Limit) -> None:
        self.kind = kind
        self.limit = limit
        self.used = 0
        self.by_token: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def take(self, identity: Identity, amount: int) -> None:
        limit = self.limit
        if not identity.is_admin and self.by_token[identity.id] + amount > limit.per_token:
            self.refused["token"] += 1
            raise QuotaExceeded(
                f"this token has {self.by_token[identity.id]:,} {self.kind} in flight, "
                f"the limit is {limit.per_token:,}",
                code=_CODES[self.kind],
                hint=_HINTS[self.kind],
            )
        if self.used + amount > (limit.with_admins if identity.is_admin else limit.total):
            self.refused["all"] += 1
            raise Unavailable(
                f"{self.used:,} {self.kind} are in flight; this gateway has no room for more",
                code="overloaded",
                hint="try again later, with fewer or smaller requests at once",
            )
        self.used += amount
        self.by_token[identity.id] += amount

    def give_back(self, identity: Identity, amount: int) -> None:
        self.used -= amount
        self.by_token[identity.id] -= amount
        if not self.by_token[identity.id]:
            del self.by_token[identity.id]


class Quotas:
    """What all requests of one gateway have in flight. May be used from several threads: bodies are decoded in some."""

    def __init__(self, *, requests: Limit, waits: Limit, memory: Limit) -> None:
        self._lock = threading.Lock()
        self._ledgers: dict[Kind, _Ledger] = {
            "requests": _Ledger("requests", requests),
            "waits": _Ledger("waits", waits),
            "bytes": _Ledger("bytes", memory),
        }

    @classmethod
    def of(cls, settings: AccessSettings, *, requests: int, memory_bytes: int) -> Quotas:
        waits = max(1, int(requests * _WAITS_SHARE))
        return cls(
            requests=_places(requests, settings),
            waits=_places(waits, settings),
            memory=Limit(
                total=memory_bytes - int(memory_bytes * _ADMIN_MEMORY_SHARE),
                per_token=int(settings.token_memory),
                with_admins=memory_bytes,
            ),
        )

    @contextmanager
    def request(self, identity: Identity) -> Iterator[QuotaPlace]:
        """A place for one request, until this is left."""
        self.take("requests", identity, 1)
        place = QuotaPlace(self, identity)
        try:
            yield place
        finally:
            place.close()
            self.give_back("requests", identity, 1)

    def take(self, kind: Kind, identity: Identity, amount: int) -> None:
        with self._lock:
            self._ledgers[kind].take(identity, amount)

    def give_back(self, kind: Kind, identity: Identity, amount: int) -> None:
        with self._lock:
            self._ledgers[kind].give_back(identity, amount)

    def limit(self, kind: Kind) -> Limit:
        return self._ledgers[kind].limit

    def used(self, kind: Kind, token_id: str | None = None) -> int:
        """What is in flight, of all or of one token."""
        ledger = self._ledgers[kind]
        return ledger.used if token_id is None else ledger.by_token[token_id]

    def refused(self, kind: Kind) -> dict[str, int]:
        """How often a request was refused: by the quota of a `token`, and by the limit for `all`."""
        counts = self._ledgers[kind].refused
        return {"token": counts["token"], "all": counts["all"]}


def _places(total: int, settings: AccessSettings) -> Limit:
    per_token = max(1, int(total * settings.token_share))
    return Limit(total=total, per_token=per_token, with_admins=total + settings.admin_reserve)


class QuotaPlace:
    """What one request holds."""

    def __init__(self, quotas: Quotas, identity: Identity) -> None:
        self._quotas = quotas
        self._identity = identity
        self._lock = threading.Lock()
        self._waits = 0
        self._bytes = 0
        self._closed = False

    @property
    def token_id(self) -> str:
        return self._identity.id

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count this request among those that only wait. Inside of another wait of the same request, it is that one."""
        if not self._waits:
            self._quotas.take("waits", self._identity, 1)
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._quotas.give_back("waits", self._identity, 1)

    @contextmanager
    def memory(self) -> Iterator[Memory]:
        """An account of memory that is empty again when this is left."""
        account = Memory(self)
        try:
            yield account
        finally:
            account.release()

    def take(self, size: int) -> None:
        """Count memory that is about to be used. Raises `TooLarge` if it is above the limit of one request."""
        with self._lock:
            if self._closed:
                raise Unavailable("the request has ended", code="request_over")
            limit = self._quotas.limit("bytes")
            most = limit.with_admins if self._identity.is_admin else min(limit.total, limit.per_token)
            if self._bytes + size > most:
                raise TooLarge(
                    f"reading this request takes {self._bytes + size:,} bytes of memory, the limit is {most:,}",
                    code="body_too_large",
                    hint="send fewer events in each request, or raise access.token_memory and ingest.max_memory_bytes",
                )
            self._quotas.take("bytes", self._identity, size)
            self._bytes += size

    def give_back(self, size: int) -> None:
        with self._lock:
            if not self._closed:
                self._quotas.give_back("bytes", self._identity, size)
                self._bytes -= size

    def close(self) -> None:
        """Give back what is left. A thread that outlives its request takes nothing any more."""
        with self._lock:
            self._closed = True
            self._quotas.give_back("bytes", self._identity, self._bytes)
            self._bytes = 0


class Memory:
    """The memory of one step of a request."""

    def __init__(self, place: QuotaPlace) -> None:
        self._place = place
        self.size = 0

    def take(self, size: int) -> None:
        self._place.take(size)
        self.size += size

    def give_back(self, size: int) -> None:
        self._place.give_back(size)
        self.size -= size

    def release(self) -> None:
        self.give_back(self.size)
