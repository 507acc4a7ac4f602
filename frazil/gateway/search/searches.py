"""Searches: find the table, bring in fresh rows, filter by grant and request, rank, write the audit entry."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from frazil.access import AuditFields, AuditLog, Identity, ReadGrant, audit_entry
from frazil.errors import Conflict, InvalidInput, NotFound, table_not_found
from frazil.gateway.search.filters import Filters
from frazil.gateway.search.fresh_feed import FreshFeeds
from frazil.gateway.search.hits import hits_as_json, rows_as_json
from frazil.gateway.search.search_plan import SearchPlan, plan_search
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.gateway.threads import to_the_end
from frazil.requests import FreshnessSpec, SearchRequest, Waiting
from frazil.serving import Profile, Profiles, SearchSettings
from frazil.serving.search import Allowed, FreshFull, FreshGap, SearchResult, SearchState
from frazil.serving.sql import FairQueue, FilesUnreadable, QueryPool, QuerySettings, QueryTimeout
from frazil.serving.sql.worker import RowSelection
from frazil.tables import CutMoved, SchemaMoved, TableDirectory, TableReplaced, TableResolver

_TRIES = 6
_BEHIND_SECONDS = 0.25
_PROFILE_SECONDS = 1.0
# Each step knows the deadline and says better what it waited for; this ends what does not come back at all.
_GRACE_SECONDS = 1.0
# Searching leaves the interpreter to others; more threads than cores only wait for each other.
_THREADS = max(2, os.cpu_count() or 2)
_MOVED = (CutMoved, SchemaMoved, TableReplaced, FilesUnreadable)


@dataclass(frozen=True)
class _Search:
    """One search on its way: the request, its caller, and the table as the caller may see it."""

    request: SearchRequest
    identity: Identity
    profile: Profile | None
    grant: ReadGrant
    table: str
    freshness: FreshnessSpec
    started: float

    @property
    def deadline(self) -> float:
        return self.started + self.request.timeout_s


class Searches:
    def __init__(
        self,
        *,
        pool: QueryPool,
        resolver: TableResolver,
        directory: TableDirectory,
        shelves: ShelfReaders,
        profiles: Profiles,
        audit: AuditLog,
        settings: SearchSettings | None = None,
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._shelves = shelves
        self._profiles = profiles
        self._known_profiles: dict[str, tuple[float, Profile]] = {}
        self._audit = audit
        self._resolver = resolver
        self._feeds = FreshFeeds(pool, settings or SearchSettings())
        self._filters = Filters(pool)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")
        self._turns = FairQueue(QuerySettings(workers=_THREADS, slow_workers=0))
        """Whose search gets a thread: by token in rounds. One that is given up while it waits is not done."""

    async def answer(
        self, request: SearchRequest, identity: Identity, *, client: str | None = None, waiting: Waiting = nullcontext
    ) -> bytes:
        """The answer as JSON, once it is in the audit log; so is every failure. Cancelling this stops the search."""
        started = time.monotonic()
        with (
            audit_entry(self._audit, "search", identity, words=request.query, client=client) as trace,
            ExitStack() as wait,
        ):
            search = await self._authorized(request, identity, started, waiting)
            trace.tables = (search.table,)
            moves, waits = 0, False
            while True:
                try:
                    async with asyncio.timeout_at(_loop_time(search.deadline) + _GRACE_SECONDS):
                        return await self._attempt(search, trace, guess=moves == 0)
                except (FreshFull, FreshGap):
                    # Too much is fresh: a newer generation makes room, if the caller prefers to wait for it.
                    if not request.reads.wait_when_behind or time.monotonic() + _BEHIND_SECONDS > search.deadline:
                        raise
                    if not waits:
                        wait.enter_context(waiting())
                    waits = True
                    await asyncio.sleep(_BEHIND_SECONDS)
                except _MOVED:
                    # A commit, a swap, a new column or an expiry came between: finding the table again finds it.
                    moves += 1
                    if moves == _TRIES:
                        raise
                    await self._resolver.refresh()
                except TimeoutError as error:
                    raise QueryTimeout(
                        f"the search took longer than {request.timeout_s:g} s", hint="give it more time"
                    ) from error

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _attempt(self, search: _Search, trace: AuditFields, *, guess: bool) -> bytes:
        request, deadline = search.request, search.deadline
        table = await self._directory.table(search.table)
        serving = await self._shelves.of(table, search.profile)
        plan = plan_search(serving.searchable, request, search.profile, search.grant)
        if request.freshness == "committed":
            await self._resolver.refresh()
        resolved = await self._resolver.newest(table.name, search.freshness, deadline=deadline, guess=guess)
        feed = self._feeds.of(serving, "live" if request.freshness == "live" else "committed")
        try:
            async with feed.read_at(resolved, deadline, by_words=plan.mode == "text") as state:
                left = max(0.1, deadline - time.monotonic())
                owner = search.identity.id
                allowed = await self._filters.allowed(state, plan.selection, owner=owner, seconds=left)
                # The thread reads what is held open here: a search that is given up waits for it to end.
                async with self._turns.slot(owner, _loop_time(deadline)):
                    found, rows = await to_the_end(
                        asyncio.get_running_loop().run_in_executor(self._threads, _ranked, state, plan, allowed)
                    )
        except FreshGap as gap:
            # What is kept apart began with a newer generation than the one that serves now, or is about to.
            if not self._feeds.begin_anew(serving):
                raise
            raise CutMoved.of(table.spec.short_name) from gap
        if rows is None:
            rows = await self._masked(found, plan, search, left)
        await resolved.confirm(found.position)
        token = str(resolved.token(found.position))
        trace.rows, trace.snapshot = len(found.hits), token
        return _response(found, rows, plan, search, token)

    async def _authorized(
        self, request: SearchRequest, identity: Identity, started: float, waiting: Waiting
    ) -> _Search:
        """A table, or a profile, that is not there and one that the caller may not read are refused alike."""
        profile = await self._profile(request.profile) if request.profile is not None else None
        if request.profile is not None:
            readable = profile is not None and identity.read_grant(profile.table) is not None
            if profile is None or not readable or request.table_name not in (None, profile.table):
                if readable and profile is not None:
                    raise InvalidInput(
                        f"the profile {profile.name!r} is of another table",
                        code="bad_search",
                        hint="leave out `table`",
                    )
                raise NotFound(
                    f"there is no profile {request.profile[:80]!r}",
                    code="profile_not_found",
                    hint="frazil profiles list",
                )
        name = profile.table if profile is not None else request.table_name
        assert name is not None
        grant = identity.read_grant(name)
        try:
            table = await self._directory.table(name)
        except NotFound as error:
            raise table_not_found(name) from error
        if grant is None:
            raise table_not_found(name)
        if table.spec.kind not in ("log", "entity") or self._directory.spec_of(table).searched is None:
            raise Conflict(
                f"{table.spec.short_name!r} is not searched",
                code="not_searched",
                hint='declare what to search in, as in "text": ["body"]',
            )
        freshness = replace(request.reads, waiting=waiting)
        return _Search(request, identity, profile, grant, table.name, freshness, started)

    async def _profile(self, name: str) -> Profile | None:
        known = self._known_profiles.get(name)
        if known is not None and time.monotonic() - known[0] < _PROFILE_SECONDS:
            return known[1]
        self._known_profiles.pop(name, None)
        try:
            profile = await asyncio.to_thread(self._profiles.get, name)
        except NotFound:
            return None
        self._known_profiles[name] = (time.monotonic(), profile)
        return profile

    async def _masked(
        self, found: SearchResult, plan: SearchPlan, search: _Search, seconds: float
    ) -> list[dict[str, Any]]:
        """The rows of the hits as SQL would show them to this caller."""
        schema = pa.schema([plan.selection.columns.field(name) for name in plan.columns or ()])
        rows = pa.Table.from_pylist([dict(hit.row) for hit in found.hits], schema=schema)
        if not rows.num_rows:
            return []
        masks = {name: mask for name, mask in search.grant.masks.items() if name in schema.names}
        seen = await self._pool.show(
            RowSelection(schema, masks=masks, hash_domains=search.grant.hash_domains),
            rows,
            owner=search.identity.id,
            timeout_seconds=seconds,
        )
        return [dict(zip(schema.names, values[1:], strict=True)) for values in seen]


def _ranked(
    state: SearchState, plan: SearchPlan, allowed: Allowed | None
) -> tuple[SearchResult, list[dict[str, Any]] | None]:
    """The hits and their rows as JSON has them; None instead of these where a column is masked."""
    found = state.search(plan, allowed)
    columns = plan.columns or ()
    if any(name in plan.selection.masks for name in columns):
        return found, None
    return found, rows_as_json([hit.row for hit in found.hits], state.searchable.schema, columns)


def _response(found: SearchResult, rows: list[dict[str, Any]], plan: SearchPlan, search: _Search, token: str) -> bytes:
    return msgspec.json.encode(
        {
            "hits": hits_as_json(found, rows, plan),
            "mode": plan.mode,
            "generation": found.generation,
            "snapshot_id": found.snapshot_id,
            "token": token,
            "freshness": search.request.freshness,
            "fresh_rows": found.fresh_searched,
            "ignored": found.ignored,
            "elapsed_ms": round((time.monotonic() - search.started) * 1000, 3),
        }
    )


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
