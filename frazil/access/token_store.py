"""Token store: the tokens of all gateways in the catalog's database, without their secrets.

A token that is revoked stays in the store, so that the audit log's ids keep their names.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from frazil.access.grants import Grant
from frazil.access.identity import Identity
from frazil.access.token_secret import PREFIX, digest, digests_equal, new_id, new_secret
from frazil.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from frazil.registry import Document, Registry

log = logging.getLogger(__name__)

TOUCH_AFTER = timedelta(minutes=1)
MAX_OLD_SECRETS = 4
_FOLDER = "token/"
_TRIES = 16

State = Literal["active", "expired", "revoked"]


@dataclass(frozen=True)
class OldSecret:
    """One that was replaced and works a while longer."""

    digest: bytes
    until: datetime


@dataclass(frozen=True)
class TokenRecord:
    id: str
    name: str
    digest: bytes
    grants: tuple[Grant, ...]
    created_at: datetime
    created_by: str
    """The id of the token that it was made with."""
    expires_at: datetime | None = None
    rate_per_second: float | None = None
    burst: int | None = None
    old_secrets: tuple[OldSecret, ...] = ()
    rotated_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """Rounded: it is written at most once a minute."""

    def state(self, now: datetime) -> State:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def admits(self, presented: bytes, now: datetime) -> bool:
        """Whether the digest is of a secret that opens this token now."""
        valid = [self.digest, *(old.digest for old in self.old_secrets if old.until > now)]
        # All are compared, so that the time does not depend on the match.
        return any([digests_equal(presented, known) for known in valid]) and self.state(now) == "active"

    def not_noted_lately(self, used_at: datetime) -> bool:
        return self.last_used_at is None or used_at - self.last_used_at > TOUCH_AFTER

    def identity(self) -> Identity:
        return Identity(self.id, self.name, self.grants, self.rate_per_second, self.burst)

    def body(self, now: datetime) -> dict[str, Any]:
        """The fields that an admin may see: everything except digests."""
        return {
            "id": self.id,
            "name": self.name,
            "prefix": f"{PREFIX}{self.id}",
            "state": self.state(now),
            "grants": [grant.declared() for grant in self.grants],
            "created_at": _iso(self.created_at),
            "created_by": self.created_by,
            "expires_at": _iso(self.expires_at),
            "rotated_at": _iso(self.rotated_at),
            "old_secret_until": _iso(max((old.until for old in self.old_secrets if old.until > now), default=None)),
            "revoked_at": _iso(self.revoked_at),
            "last_used_at": _iso(self.last_used_at),
            "rate_per_second": self.rate_per_second,
            "burst": self.burst,
        }


class TokenStore:
    """The tokens of one catalog. Methods block. Each change is atomic."""

    def __init__(self, registry: Registry, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._registry = registry
        self._clock = clock

    def create(
        self,
        name: str,
        grants: tuple[Grant, ...],
        *,
        created_by: str,
        expires_at: datetime | None = None,
        rate_per_second: float | None = None,
        burst: int | None = None,
    ) -> tuple[TokenRecord, str]:
        """A new token and its secret. The secret cannot be shown again."""
        token_id = new_id()
        secret = new_secret(token_id)
        record = TokenRecord(
            id=token_id,
            name=name,
            digest=digest(secret),
            grants=grants,
            created_at=self._clock(),
            created_by=created_by,
            expires_at=expires_at,
            rate_per_second=rate_per_second,
            burst=burst,
        )
        self._registry.put(_FOLDER + token_id, msgspec.json.encode(record), None)
        return record, secret

    def get(self, token_id: str) -> TokenRecord:
        return _decode(self._document(token_id))

    def list(self) -> list[TokenRecord]:
        """All of them, the newest first."""
        found = [record for record in self.changed_since(0).values() if record is not None]
        return sorted(found, key=lambda record: record.created_at, reverse=True)

    def version(self) -> int:
        """A number that grows with every change, of tokens or of other documents."""
        return self._registry.version()

    def changed_since(self, version: int) -> dict[str, TokenRecord | None]:
        """The tokens changed after that change, by id; None for one whose document cannot be read, and so not used."""
        found: dict[str, TokenRecord | None] = {}
        for document in self._registry.list(_FOLDER, newer_than=version):
            token_id = document.key.removeprefix(_FOLDER)
            try:
                found[token_id] = _decode(document)
            except msgspec.DecodeError as error:
                log.error("token document unreadable, token refused", extra={"token_id": token_id, "error": str(error)})
                found[token_id] = None
        return found

    def revoke(self, token_id: str) -> TokenRecord:
        """End the token and all its secrets for good. Doing it twice is the same as once."""

        def revoked(record: TokenRecord) -> TokenRecord:
            if record.revoked_at is not None:
                return record
            return replace(record, revoked_at=self._clock(), old_secrets=())

        return self._changed(token_id, revoked)

    def rotate(self, token_id: str, *, grace_seconds: float = 0.0) -> tuple[TokenRecord, str]:
        """Give the token a new secret. Those it has work `grace_seconds` longer at most; with 0 they all end now."""
        secret = new_secret(token_id)

        def rotated(record: TokenRecord) -> TokenRecord:
            now = self._clock()
            state = record.state(now)
            if state != "active":
                raise Conflict(f"the token is {state}", code=f"token_{state}", hint="create a new token")
            end = now + timedelta(seconds=grace_seconds)
            held = [OldSecret(record.digest, end), *(replace(o, until=min(o.until, end)) for o in record.old_secrets)]
            kept = tuple(old for old in held if old.until > now)[:MAX_OLD_SECRETS]
            return replace(record, digest=digest(secret), old_secrets=kept, rotated_at=now)

        return self._changed(token_id, rotated), secret

    def touch(self, token_id: str, used_at: datetime) -> None:
        """Note that the token was used, once a minute. When it is changed at this very moment, nothing is noted."""
        document = self._document(token_id)
        record = _decode(document)
        if record.not_noted_lately(used_at):
            touched = msgspec.json.encode(replace(record, last_used_at=used_at))
            with contextlib.suppress(Conflict):
                self._registry.put(document.key, touched, document.version)

    def _changed(self, token_id: str, change: Callable[[TokenRecord], TokenRecord]) -> TokenRecord:
        for _ in range(_TRIES):
            document = self._document(token_id)
            record = _decode(document)
            changed = change(record)
            if changed == record:
                return record
            try:
                self._registry.put(document.key, msgspec.json.encode(changed), document.version)
                return changed
            except Conflict:
                continue
        raise Unavailable("several requests change this token at the same time", code="busy", hint="try again")

    def _document(self, token_id: str) -> Document:
        found = self._registry.get(_FOLDER + token_id) if token_id.isalnum() and len(token_id) <= 64 else None
        if found is None:
            # Without the id: it may be a whole token by mistake, and errors are logged.
            raise NotFound(
                "no token has this id", code="token_not_found", hint="list the tokens with `frazil token list`"
            )
        return found


def _decode(document: Document) -> TokenRecord:
    return msgspec.json.decode(document.body, type=TokenRecord)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment is not None else None
