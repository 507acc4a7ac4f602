"""Which generation of each searched table this gateway answers from.

A shelf is opened by the first search of it, or by the start if it has an artifact, and follows its register from then
on (`following.py`). Whatever is wrong with the next artifact, the one that serves goes on serving.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from frazil.bus import EventBus
from frazil.embedding import OWN, ModelSettings
from frazil.errors import FrazilError, InvalidInput, NotFound, Unavailable
from frazil.gateway.metrics import counter, gauge
from frazil.gateway.search.following import Following, FollowPace, to_its_end
from frazil.gateway.search.held_shelf import HeldShelf, Moved, Served
from frazil.gateway.search.query_models import QuestionModels
from frazil.gateway.search.subject import Subject
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import embedded_up_to, embeddings_table
from frazil.serving import Profile, Profiles, SearchSettings
from frazil.serving.artifacts import LocalCopies, open_shelf, shelf_names
from frazil.storage import Journal
from frazil.tables import TableDirectory

__all__ = ["Held", "Served", "ServedTables", "new_reader"]

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


def new_reader() -> str:
    """A name for this gateway among those that serve the same tables."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass
class Held:
    """A shelf with its turn: one at a time opens, swaps or proves it, and the others wait without a thread."""

    shelf: HeldShelf
    turn: asyncio.Lock
    failures: int = 0
    retry_at: float = 0.0
    error: FrazilError | None = None
    """What the last look failed with."""
    failed_for: Subject | None = None

    def failed(self, error: FrazilError, subject: Subject) -> None:
        self.failures = self.failures + 1 if subject == self.failed_for else 1
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** (self.failures - 1))
        self.error, self.failed_for, self.retry_at = error, subject, time.monotonic() + pause

    def went_well(self) -> None:
        self.failures, self.retry_at, self.error, self.failed_for = 0, 0.0, None, None

    def rests(self, subject: Subject) -> bool:
        """Whether it failed a moment ago. Another table of that name did not."""
        return self.failed_for == subject and time.monotonic() < self.retry_at


class ServedTables:
    """`start` before the first search, `close` after the last. The bus, the lake and the directory are the caller's."""

    def __init__(
        self,
        *,
        lake: Lake,
        bus: EventBus,
        directory: TableDirectory,
        models: Mapping[str, ModelSettings],
        settings: SearchSettings,
        cache: Path,
        journal: Journal,
        reader: str | None = None,
        pace: FollowPace | None = None,
    ) -> None:
        self.reader = reader or new_reader()
        self.models = models
        self.settings = settings
        self.cache = cache
        self._lake = lake
        self._directory = directory
        self._pace = pace or FollowPace()
        self._held: dict[str, Held] = {}
        self._opened_all = False
        self._closed = False
        self._following = Following(self, bus, journal, self._pace)

    async def start(self) -> None:
        """Open in the background every searched table that has an artifact, and follow what is said of them."""
        self._following.start()

    async def close(self) -> None:
        """Searches that run finish; what was held is free for clean-ups."""
        self._closed = True
        await self._following.close()
        for held in self._held.values():
            async with held.turn:
                try:
                    await asyncio.to_thread(held.shelf.close)
                except FrazilError:
                    continue  # a lease that is not taken back ends by itself

    async def of(self, table: LakeTable, profile: Profile | None = None) -> Served:
        """Open, with its current generation loaded if there is one; the first call for a shelf waits for that.

        Raises `Unavailable` with what keeps it from being opened at all; it is tried again later, by itself too.
        """
        if self._closed:
            raise Unavailable("this gateway is stopping", code="stopping", hint="ask another, or again")
        name = table.name if profile is None else profile.shelf
        subject = self.subject(table, profile)
        held = self._of_name(name)
        if (served := held.shelf.ready(subject)) is not None:
            return served
        async with held.turn:
            if (served := held.shelf.ready(subject)) is not None:
                return served
            if held.rests(subject):
                raise _not_now(held)
            with contextlib.suppress(FrazilError):
                await self._follow(held, subject)
            # Also after a failure: where the current artifact is unfit, the one before it may serve.
            if (served := held.shelf.ready(subject)) is None:
                raise _not_now(held) from held.error
            return served

    async def look(self, name: str, *, at_once: bool = False) -> Moved | None:
        """Have a shelf serve what its register says is current; raises why not. `at_once`: whatever failed before."""
        found = await self._behind(name)
        if found is None:
            await self._forget(name)
            return None
        held, subject = self._of_name(name), self.subject(*found)
        if held.rests(subject) and not at_once:
            return None
        async with held.turn:
            return await self._follow(held, subject)

    async def names(self) -> list[str]:
        """The shelves to look at: those that are open, and those that have artifacts of a table that is searched."""
        known = await asyncio.to_thread(shelf_names, self._lake.registry)
        return sorted({*self._held, *known})

    def held(self) -> list[Held]:
        return list(self._held.values())

    def of_shelf(self, name: str) -> Held | None:
        return self._held.get(name)

    def all_are_open(self) -> None:
        """What there was at the start has been looked at."""
        self._opened_all = True

    @property
    def is_starting(self) -> bool:
        return not self._opened_all

    async def _follow(self, held: Held, subject: Subject) -> Moved | None:
        try:
            moved = await to_its_end(held.shelf.follow, subject)
        except FrazilError as error:
            held.failed(error, subject)
            raise
        except Exception as error:
            wrong = FrazilError(f"{held.shelf.name} could not be opened: {error}", code="shelf_unopened")
            held.failed(wrong, subject)
            raise wrong from error
        held.went_well()
        return moved

    async def _behind(self, name: str) -> tuple[LakeTable, Profile | None] | None:
        """The table and profile of a shelf; None if there is no such thing any more."""
        table_name, _, profile_name = name.partition("@")
        try:
            table = await self._directory.table(table_name)
            profile = await asyncio.to_thread(self._profile, profile_name) if profile_name else None
        except NotFound:
            return None
        searched = table.spec.is_streamed and self._directory.spec_of(table).searched is not None
        return (table, profile) if searched and (profile is None or profile.shelf == name) else None

    async def _forget(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._following.linger(held.shelf)
            async with held.turn:
                await to_its_end(held.shelf.release)

    def _profile(self, name: str) -> Profile:
        return Profiles(self._lake.registry).get(name)

    def subject(self, table: LakeTable, profile: Profile | None) -> Subject:
        """What is searched, as the table is now; `InvalidInput` if it is not searched at all."""
        spec = self._directory.spec_of(table)
        if spec.searched is None or not spec.is_streamed:
            raise InvalidInput(
                f"{spec.short_name!r} is not searched",
                code="not_searched",
                hint='a table is searched that was declared with `text`, as in "text": ["body"]',
            )
        return Subject.of(table, spec, profile)

    def _of_name(self, name: str) -> Held:
        if name not in self._held:
            shelf = open_shelf(self._lake.registry, self._lake.warehouse, name, self.settings)
            held = HeldShelf(
                name,
                shelf,
                LocalCopies(self.cache, shelf.objects, name),
                reader=self.reader,
                models=QuestionModels(self.models),
                own_dims=self._own_dims,
                settings=self.settings,
                linger_seconds=self._pace.linger_seconds,
            )
            self._held[name] = Held(held, asyncio.Lock())
        return self._held[name]

    def _own_dims(self, table: str) -> int | None:
        known = embedded_up_to(embeddings_table(self._lake, table), OWN)
        return known.dims if known is not None and known.dims else None

    def status(self) -> list[dict[str, Any]]:
        """What each shelf serves, and what is wrong."""
        return [told(held.shelf) for _, held in sorted(self._held.items())]

    def metrics(self) -> Iterable[Metric]:
        shelves = self.status()

        def values(word: str) -> list[tuple[list[str], float | None]]:
            return [([one["shelf"]], one[word]) for one in shelves]

        degraded = [([one["shelf"]], float(one["trouble"] is not None)) for one in shelves]
        yield gauge("frazil_search_degraded", "Whether a shelf does not serve what it should.", degraded, "shelf")
        yield gauge("frazil_search_artifact_age_seconds", "Age of what is served.", values("age_seconds"), "shelf")
        yield gauge(
            "frazil_search_fresh_documents", "Documents newer than the artifact.", values("fresh_documents"), "shelf"
        )
        yield counter("frazil_search_swaps", "Generations that were swapped in.", values("swaps"), "shelf")


def _not_now(held: Held) -> Unavailable:
    """Why a shelf cannot be searched; it is tried again without being asked to."""
    error = held.error
    assert error is not None, "it has failed"
    pause = max(1.0, held.retry_at - time.monotonic())
    return Unavailable(error.message, code=error.code, hint=error.hint, retry_after_seconds=pause)


def told(shelf: HeldShelf) -> dict[str, Any]:
    """One shelf, for people and programs."""
    status, entry, trouble = shelf.status(), shelf.entry, shelf.trouble
    if trouble is not None:
        state = "degraded"
    elif shelf.served is None:
        state = "opening"
    else:
        state = "ok" if status.generation else "no_artifact"
    return {
        "shelf": shelf.name.removeprefix("main."),
        "table": shelf.name.partition("@")[0].removeprefix("main."),
        "state": state,
        "model": shelf.served.model if shelf.served else None,
        "generation": status.generation,
        "snapshot_id": status.snapshot_id,
        "age_seconds": round(time.time() - entry.entered_at, 1) if entry and status.generation else None,
        "fresh_documents": status.fresh_documents,
        "draining": list(status.draining),
        "swaps": shelf.swaps,
        "trouble": None
        if trouble is None
        else {
            "generation": trouble.generation or None,
            "code": trouble.code,
            "reason": trouble.reason,
            "since": datetime.fromtimestamp(trouble.at).astimezone().isoformat(timespec="seconds"),
        },
    }
