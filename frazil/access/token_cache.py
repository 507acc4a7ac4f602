"""Token cache: all tokens in the memory of a gateway, at most a poll behind the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from frazil.access.token_store import TokenRecord, TokenStore
from frazil.errors import FrazilError, Unavailable

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
_TOUCHES_AT_ONCE = 20
_ABSENT_SECONDS = 1.0
_MAX_ABSENT = 1000


class TokenCache:
    """Follows the store. An id that is not known is looked for once, so that a new token works at once everywhere.

    While the store cannot be reached, known tokens stay valid for `stale_seconds`. After that every token is refused,
    because it may have been revoked elsewhere.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        poll_seconds: float,
        stale_seconds: float,
        each_poll: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._stale_seconds = stale_seconds
        self._each_poll = each_poll
        self._clock = clock
        self._records: dict[str, TokenRecord] = {}
        self._version: int | None = None
        """The change that the records are complete up to; None to read them all again."""
        self._seen_at: float | None = None
        """When the store was last found as the records are."""
        self._absent: OrderedDict[str, float] = OrderedDict()
        self._used: dict[str, datetime] = {}
        self._looking = asyncio.Lock()
        self._looks_begun = 0
        self._looked = 0
        """The number of the last look that came to its end."""
        self._failure: FrazilError | None = None
        """Why the last look failed."""
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look once, then follow. A store that cannot be reached yet is looked for in the background."""
        with contextlib.suppress(FrazilError):
            await self.look()
        self._following = asyncio.create_task(self._follow(), name="follow the tokens")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    async def find(self, token_id: str) -> TokenRecord | None:
        """The token from the cache; raises `Unavailable` if the cache is older than `stale_seconds`."""
        record = self._records.get(token_id)
        if record is None and not self._known_absent(token_id):
            await self._look_now()
            record = self._records.get(token_id)
            if record is None:
                self._absent[token_id] = self._clock()
                while len(self._absent) > _MAX_ABSENT:
                    self._absent.popitem(last=False)
        if self._seen_at is None or self._clock() - self._seen_at > self._stale_seconds:
            raise _unreachable()
        return record

    def note_use(self, record: TokenRecord, now: datetime) -> None:
        if record.not_noted_lately(now):
            self._used.setdefault(record.id, now)

    async def look(self) -> None:
        """See all changes made before this call. Calls that come while one is looking share the next look."""
        arrived = self._looks_begun
        async with self._looking:
            # It does not count whether another look has begun: that one may have been cancelled.
            if self._looked <= arrived:
                self._looks_begun += 1
                await self._look()
                self._looked = self._looks_begun
        if self._failure is not None:
            raise self._failure

    async def _look_now(self) -> None:
        """Look for a caller that waits, with a time limit. A look that hangs goes on alone, and others wait for it."""
        looking = asyncio.create_task(self.look())
        looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.wait_for(asyncio.shield(looking), PATIENCE_SECONDS)
        except (FrazilError, TimeoutError) as error:
            raise _unreachable() from error

    async def _look(self) -> None:
        began = self._clock()
        try:
            version, changed = await asyncio.to_thread(self._read, self._version)
        except FrazilError as error:
            self._failure = error
            self._version = None  # the store may be another when it is back: one restored from a backup
            return
        self._failure = None
        if self._version is None or version < self._version:
            self._records = {}
        for token_id, record in changed.items():
            if record is None:
                self._records.pop(token_id, None)
            else:
                self._records[token_id] = record
            self._absent.pop(token_id, None)
        self._version, self._seen_at = version, began

    def _read(self, known: int | None) -> tuple[int, dict[str, TokenRecord | None]]:
        version = self._store.version()
        if version == known:
            return version, {}
        return version, self._store.changed_since(known if known is not None and known < version else 0)

    async def _follow(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                self._each_poll()
                await self.look()
                await self._touch()
                failing = False
            except FrazilError as error:
                if not failing:
                    log.warning("token refresh failed", extra={"error": str(error)})
                failing = True
            except Exception:
                # Any error: if this task ends, all tokens are refused when the cache is older than `stale_seconds`.
                if not failing:
                    log.exception("token refresh failed")
                failing = True

    async def _touch(self) -> None:
        used = dict(list(self._used.items())[:_TOUCHES_AT_ONCE])
        for token_id, at in used.items():
            del self._used[token_id]
            with contextlib.suppress(FrazilError):  # best effort: it only shows an operator which tokens are idle
                await asyncio.to_thread(self._store.touch, token_id, at)

    def _known_absent(self, token_id: str) -> bool:
        looked_at = self._absent.get(token_id)
        return looked_at is not None and self._clock() - looked_at < _ABSENT_SECONDS


def _unreachable() -> Unavailable:
    return Unavailable(
        "access tokens cannot be checked now",
        code="tokens_unavailable",
        hint="try again; if it fails again, check the catalog's database and GET /v1/health",
        retry_after_seconds=2.0,
    )
