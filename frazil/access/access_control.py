"""Access control of a gateway: identity of the caller, rate limit, audit of refused requests."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.access.audit import AuditEntry, AuditLog
from frazil.access.denied_log import DeniedLog
from frazil.access.identity import ADMIN, Identity
from frazil.access.rate_limit import RateLimited, RateLimiter
from frazil.access.settings import AccessSettings
from frazil.access.token_cache import TokenCache
from frazil.access.token_secret import digest, digests_equal, id_of
from frazil.access.token_store import TokenStore
from frazil.errors import Denied, FrazilError

if TYPE_CHECKING:
    from frazil.registry import Registry

log = logging.getLogger(__name__)


class AccessControl:
    """`start` before the first call, `close` after the last."""

    def __init__(
        self, *, registry: Registry, admin_token: str, audit_folder: Path, settings: AccessSettings | None = None
    ) -> None:
        self.settings = settings or AccessSettings()
        self.tokens = TokenStore(registry)
        self.audit = AuditLog(audit_folder, max_file_bytes=int(self.settings.audit_file_bytes))
        self._refusals = DeniedLog(self.audit, per_second=self.settings.denied_per_second)
        self._known = TokenCache(
            self.tokens,
            poll_seconds=self.settings.poll_seconds,
            stale_seconds=self.settings.stale_seconds,
            each_poll=self._refusals.flush,
        )
        self._rates = RateLimiter()
        self._admin_digest = digest(admin_token)

    async def start(self) -> None:
        await self._known.start()

    async def close(self) -> None:
        await self._known.close()
        try:
            self._refusals.flush(closing=True)
        except FrazilError as error:
            log.warning("audit log lost counts of refused requests", extra={"error": str(error)})
        self.audit.close()

    async def identify(self, bearer: str) -> Identity:
        """The identity of a token. `Denied` with one message for unknown, wrong, expired and revoked tokens."""
        presented = digest(bearer)
        if digests_equal(presented, self._admin_digest):
            return ADMIN
        token_id = id_of(bearer)
        record = await self._known.find(token_id) if token_id is not None else None
        now = datetime.now(UTC)
        if record is None or not record.admits(presented, now):
            raise Denied(
                "the request has no valid access token",
                hint="send the header Authorization: Bearer <token>; `frazil up` writes the admin token to admin.token "
                "in the data directory",
            )
        self._known.note_use(record, now)
        return record.identity()

    def admit(self, identity: Identity) -> None:
        """Count one request of this caller, or raise `RateLimited`. Admins are limited only if their token says so."""
        per_second, burst = identity.rate_per_second, identity.burst
        if per_second is None and identity.is_admin:
            return
        if per_second is None:
            per_second, burst = self.settings.rate_per_second, burst or self.settings.burst
        wait = self._rates.take(identity.id, per_second=per_second, burst=burst or max(1, round(2 * per_second)))
        if wait > 0:
            raise RateLimited(
                f"this token may send {per_second:g} requests per second",
                hint="wait for the seconds in Retry-After, send more events in each request, or use a token with a "
                "higher rate",
                retry_after_seconds=wait,
            )

    async def see_changes(self) -> None:
        """Read the changes of the store up to now, for example after a change by this gateway."""
        with contextlib.suppress(FrazilError):  # then the next look sees it
            await self._known.look()

    def refused(self, entry: AuditEntry) -> None:
        """Log a refusal, or a count of refusals. The request is refused even if the log cannot be written."""
        try:
            self._refusals.note(entry)
        except FrazilError as error:
            log.warning("audit log lost entry of refused request", extra={"error": str(error)})
