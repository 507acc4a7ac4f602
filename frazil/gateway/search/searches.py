"""Answering a search: find the table, bring in what is fresh, choose what may be found, search, write it down."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from frazil.access import AuditFields, AuditLog, Identity, ReadGrant, audit_entry
from frazil.errors import Conflict, InvalidInput, NotFound, Unavailable
from frazil.gateway.query.cut import CutMoved
from frazil.gateway.query.resolve import Resolver
from frazil.gateway.search.cuts import Cuts, FoundCut, Reach
from frazil.gateway.search.feeding import Feed, Feeds, Kind
from frazil.gateway.search.filters import Filters
from frazil.gateway.search.hits import told_hits, told_rows
from frazil.gateway.search.search_plan import SearchPlan, question
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.gateway.threads import to_the_end
from frazil.lake.catalog import LakeTable
from frazil.requests import FreshnessSpec, SearchRequest, Waiting
from frazil.serving import Profile, Profiles, SearchSettings
from frazil.serving.search import Allowed, FreshFull, FreshGap, SearchResult, SearchState, ServedGenerations
from frazil.serving.sql import FilesUnreadable, QueryPool, QueryTimeout
from frazil.serving.sql.worker import RowSelection
from frazil.tables import SchemaMoved, TableDirectory, TableReplaced

_TRIES = 6
_BEHIND_SECONDS = 0.25
_PROFILE_SECONDS = 1.0
# Each step knows the deadline and says better what it waited for; this ends what does not come back at all.
_GRACE_SECONDS = 1.0
# Searching leaves the interpreter to others; more threads than cores only wait for each other.
_THREADS = max(2, os.cpu_count() or 2)
_MOVED = (CutMoved, SchemaMoved, TableReplaced, FilesUnreadable)


@dataclass(frozen=True)
class _Subject:
    """The table that is searched, as the caller may see it."""

    table: LakeTable
    grant: ReadGrant
    profile: Profile | None


class Searches:
    def __init__(
        self,
        *,
        pool: QueryPool,
        resolver: Resolver,
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
        self._cuts = Cuts(resolver, directory)
        self._feeds = Feeds(pool, settings or SearchSettings())
        self._filters = Filters(pool)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")

    async def answer(
        self, asked: SearchRequest, identity: Identity, *, client: str | None = None, waiting: Waiting = nullcontext
    ) -> bytes:
        """The answer as JSON, once it is in the audit log; so is every failure. Cancelling this stops the search."""
        with audit_entry(self._audit, "search", identity, words=asked.query, client=client) as trace:
            return await self._answer(asked, identity, trace, time.monotonic(), waiting)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(
        self, asked: SearchRequest, identity: Identity, trace: AuditFields, started: float, waiting: Waiting
    ) -> bytes:
        deadline = started + asked.timeout_s
        subject = await self._subject(asked, identity)
        trace.tables = (subject.table.name,)
        for attempt in range(_TRIES):
            try:
                async with asyncio.timeout_at(_loop_time(deadline) + _GRACE_SECONDS):
                    sql = replace(asked.reads, waiting=waiting)
                    tried = partial(self._tried, asked, sql, subject, identity, trace, started, deadline, attempt == 0)
                    return await self._waited(asked, deadline, tried, waiting)
            except _MOVED:
                # A commit, a swap, a new column or an expiry came between: finding the table again finds it.
                if attempt == _TRIES - 1:
                    raise
                await self._cuts.look_again()
            except TimeoutError as error:
                raise QueryTimeout(
                    f"the search took longer than {asked.timeout_s:g} s", hint="give it more time"
                ) from error
        raise AssertionError("the last try returns or raises")

    async def _waited(
        self, asked: SearchRequest, deadline: float, tried: Callable[[], Awaitable[bytes]], waiting: Waiting
    ) -> bytes:
        """Once, or while too much is fresh and the caller prefers to wait, until the deadline."""
        with ExitStack() as wait:
            waits = False
            while True:
                try:
                    return await tried()
                except (FreshFull, FreshGap):
                    if not asked.reads.wait_when_behind or time.monotonic() + _BEHIND_SECONDS > deadline:
                        raise
                    if not waits:
                        wait.enter_context(waiting())
                    waits = True
                    await asyncio.sleep(_BEHIND_SECONDS)

    async def _tried(
        self,
        asked: SearchRequest,
        sql: FreshnessSpec,
        subject: _Subject,
        identity: Identity,
        trace: AuditFields,
        started: float,
        deadline: float,
        guess: bool,
    ) -> bytes:
        table = await self._directory.table(subject.table.name)
        shelf = await self._shelves.of(table, subject.profile)
        asking = question(shelf.searchable, asked, subject.profile, subject.grant)
        there = await self._cuts.find(table, sql, deadline=deadline, guess=guess)
        try:
            feed, reached = await self._fed(shelf, asked, asking, there, deadline)
            with feed.reading() as reading:
                if not feed.is_fed(reached, reading):
                    raise CutMoved(f"{table.spec.short_name!r} is changing", hint="try again")
                left = max(0.1, deadline - time.monotonic())
                allowed = await self._filters.allowed(reading, asking.selection, owner=identity.id, seconds=left)
                # The thread reads what is held open here: a search that is given up waits for it to end.
                found, rows = await to_the_end(
                    asyncio.get_running_loop().run_in_executor(self._threads, _searched, reading, asking, allowed)
                )
        except FreshGap as gap:
            # What is kept beside began with a newer generation than the one that serves now, or is about to.
            if not self._feeds.begin_anew(shelf):
                raise
            raise CutMoved(f"{table.spec.short_name!r} is changing", hint="try again") from gap
        if rows is None:
            rows = await self._masked(found, shelf, asking, subject.grant, identity, left)
        await self._cuts.confirm(there, found.position)
        token = str(reached.token(found.position))
        trace.rows, trace.snapshot = len(found.hits), token
        return _body(shelf, asked, asking, found, rows, token, started)

    async def _fed(
        self, shelf: ServedGenerations, asked: SearchRequest, asking: SearchPlan, there: FoundCut, deadline: float
    ) -> tuple[Feed, Reach]:
        kind: Kind = "live" if asked.freshness == "live" else "committed"
        try:
            return await self._brought(shelf, kind, there, deadline)
        except Unavailable as error:
            # The model does not answer. Words need none: they are searched without it.
            if asking.ask.mode != "text" or shelf.searchable.model is None or _is_ours(error) or kind != "live":
                raise
            return await self._brought(shelf, "words", there, deadline)

    async def _brought(
        self, shelf: ServedGenerations, kind: Kind, there: FoundCut, deadline: float
    ) -> tuple[Feed, Reach]:
        feed = self._feeds.of(shelf, kind)
        return feed, await feed.bring(there, deadline)

    async def _subject(self, asked: SearchRequest, identity: Identity) -> _Subject:
        """A table, or a profile, that is not there and one that the caller may not read are refused alike."""
        profile = await self._profile(asked.profile) if asked.profile is not None else None
        if asked.profile is not None:
            readable = profile is not None and identity.read_grant(profile.table) is not None
            if profile is None or not readable or asked.table_name not in (None, profile.table):
                if readable and profile is not None:
                    raise InvalidInput(
                        f"the profile {profile.name!r} is of another table",
                        code="bad_search",
                        hint="leave out `table`",
                    )
                raise NotFound(
                    f"there is no profile {asked.profile[:80]!r}",
                    code="profile_not_found",
                    hint="frazil profiles list",
                )
        name = profile.table if profile is not None else asked.table_name
        assert name is not None
        grant = identity.read_grant(name)
        try:
            table = await self._directory.table(name)
        except NotFound as error:
            raise _no_table(name) from error
        if grant is None:
            raise _no_table(name)
        if table.spec.kind not in ("log", "entity") or self._directory.spec_of(table).searched is None:
            raise Conflict(
                f"{table.spec.short_name!r} is not searched",
                code="not_searched",
                hint='declare what to search in, as in "text": ["body"]',
            )
        return _Subject(table, grant, profile)

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
        self,
        found: SearchResult,
        shelf: ServedGenerations,
        asking: SearchPlan,
        grant: ReadGrant,
        identity: Identity,
        seconds: float,
    ) -> list[dict[str, Any]]:
        """The rows of the hits as SQL would show them to this caller."""
        columns = asking.ask.columns or ()
        schema = pa.schema([shelf.searchable.schema.field(name) for name in columns])
        rows = pa.Table.from_pylist([dict(hit.row) for hit in found.hits], schema=schema)
        if not rows.num_rows:
            return []
        masks = {name: mask for name, mask in grant.masks.items() if name in columns}
        seen = await self._pool.show(
            RowSelection(schema, masks=masks, hash_domains=grant.hash_domains),
            rows,
            owner=identity.id,
            timeout_seconds=seconds,
        )
        return [dict(zip(columns, values[1:], strict=True)) for values in seen]


def _searched(
    reading: SearchState, asking: SearchPlan, allowed: Allowed | None
) -> tuple[SearchResult, list[dict[str, Any]] | None]:
    """The hits and their rows as JSON has them; None instead of these where a column is masked."""
    found = reading.search(asking.ask, allowed)
    columns = asking.ask.columns or ()
    if any(name in asking.selection.masks for name in columns):
        return found, None
    return found, told_rows([hit.row for hit in found.hits], reading.searchable.schema, columns)


def _body(
    shelf: ServedGenerations,
    asked: SearchRequest,
    asking: SearchPlan,
    found: SearchResult,
    rows: list[dict[str, Any]],
    token: str,
    started: float,
) -> bytes:
    return msgspec.json.encode(
        {
            "hits": told_hits(found, rows, shelf.searchable, asking),
            "mode": asking.ask.mode,
            "generation": found.generation,
            "snapshot_id": found.snapshot_id,
            "token": token,
            "freshness": asked.freshness,
            "fresh_rows": found.fresh_searched,
            "ignored": found.ignored,
            "elapsed_ms": round((time.monotonic() - started) * 1000, 3),
        }
    )


def _is_ours(error: Unavailable) -> bool:
    """Whether something else than the model failed: then words would fail too."""
    return isinstance(error, FreshFull | FreshGap | FilesUnreadable | CutMoved | QueryTimeout) or error.code in (
        "busy",
        "no_generation",
        "visibility_timeout",
        "artifact_of_other_stream",
    )


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + deadline - time.monotonic()


def _no_table(name: str) -> NotFound:
    return NotFound(
        f"no table is named {name.removeprefix('main.')[:200]!r}",
        code="table_not_found",
        hint="`frazil tables list` shows the tables that this token may read",
    )
