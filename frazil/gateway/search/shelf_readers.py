"""Shelf readers: the shelves of all searched tables, as far as this gateway serves them.

A shelf is opened by the first search of it, or by the start if it has an artifact, and follows its register from then
on (`shelf_follower.py`). Whatever is wrong with the next artifact, the one that serves goes on serving.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import Metric

from frazil.bus import EventBus
from frazil.embedding import OWN, ModelSettings
from frazil.errors import FrazilError, InvalidInput, NotFound, Unavailable
from frazil.gateway.metrics import counter, gauge
from frazil.gateway.search.query_models import QueryModels
from frazil.gateway.search.shelf_follower import FollowPace, ShelfFollower
from frazil.gateway.search.shelf_reader import SearchedTable, ShelfReader
from frazil.gateway.threads import finish_in_thread
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import embedded_up_to, embeddings_table
from frazil.serving import Profile, Profiles, SearchSettings
from frazil.serving.artifacts import LocalCopies, open_shelf, shelf_names
from frazil.storage import Journal
from frazil.tables import TableDirectory

if TYPE_CHECKING:
    from frazil.serving.search import ServedGenerations, SwapResult


def new_reader_name() -> str:
    """A name for this gateway among those that serve the same tables."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


class ShelfReaders:
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
        self.reader = reader or new_reader_name()
        self.models = models
        self.settings = settings
        self.cache = cache
        self._lake = lake
        self._directory = directory
        self._pace = pace or FollowPace()
        self._readers: dict[str, ShelfReader] = {}
        self._opened_all = False
        self._closed = False
        self._follower = ShelfFollower(self, bus, journal, self._pace)

    async def start(self) -> None:
        """Open in the background every searched table that has an artifact, and follow their registers."""
        self._follower.start()

    async def close(self) -> None:
        """Searches that run finish; what was held is free for clean-ups."""
        self._closed = True
        await self._follower.close()
        for reader in self._readers.values():
            async with reader.turn:
                try:
                    await asyncio.to_thread(reader.close)
                except FrazilError:
                    continue  # a lease that is not taken back ends by itself

    async def of(self, table: LakeTable, profile: Profile | None = None) -> ServedGenerations:
        """What a search of this table is answered from, open; the first call for a shelf waits for that.

        Raises `Unavailable` with what keeps it from being opened at all; it is tried again later, by itself too.
        """
        if self._closed:
            raise Unavailable("this gateway is stopping", code="stopping", hint="try again")
        searched = self.searched(table, profile)
        reader = self._reader(table.name if profile is None else profile.shelf)
        return reader.ready(searched) or await reader.open(searched)

    async def look(self, name: str, *, at_once: bool = False) -> SwapResult | None:
        """Have a shelf serve what its register says is current; raises why not. `at_once`: whatever failed before."""
        found = await self._behind(name)
        if found is None:
            await self._forget(name)
            return None
        reader, searched = self._reader(name), self.searched(*found)
        if reader.is_backing_off(searched) and not at_once:
            return None
        async with reader.turn:
            return await reader.follow(searched)

    async def names(self) -> list[str]:
        """The shelves to look at: those that are open, and those that have artifacts of a table that is searched."""
        known = await asyncio.to_thread(shelf_names, self._lake.registry)
        return sorted({*self._readers, *known})

    def readers(self) -> list[ShelfReader]:
        return list(self._readers.values())

    def of_shelf(self, name: str) -> ShelfReader | None:
        return self._readers.get(name)

    def all_are_open(self) -> None:
        """What there was at the start has been looked at."""
        self._opened_all = True

    @property
    def is_starting(self) -> bool:
        return not self._opened_all

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
        reader = self._readers.pop(name, None)
        if reader is not None:
            self._follower.close_later(reader)
            async with reader.turn:
                await finish_in_thread(reader.release)

    def _profile(self, name: str) -> Profile:
        return Profiles(self._lake.registry).get(name)

    def searched(self, table: LakeTable, profile: Profile | None) -> SearchedTable:
        """The table as it is searched now; `InvalidInput` if it is not searched at all."""
        spec = self._directory.spec_of(table)
        if spec.searched is None or not spec.is_streamed:
            raise InvalidInput(
                f"{spec.short_name!r} is not searched",
                code="not_searched",
                hint='a table is searched that was declared with `text`, as in "text": ["body"]',
            )
        return SearchedTable.of(table, spec, profile)

    def _reader(self, name: str) -> ShelfReader:
        if name not in self._readers:
            shelf = open_shelf(self._lake.registry, self._lake.warehouse, name, self.settings)
            self._readers[name] = ShelfReader(
                name,
                shelf,
                LocalCopies(self.cache, shelf.objects, name),
                reader=self.reader,
                models=QueryModels(self.models),
                own_dims=self._own_dims,
                settings=self.settings,
                linger_seconds=self._pace.linger_seconds,
            )
        return self._readers[name]

    def _own_dims(self, table: str) -> int | None:
        known = embedded_up_to(embeddings_table(self._lake, table), OWN)
        return known.dims if known is not None and known.dims else None

    def status(self) -> list[dict[str, Any]]:
        """The state of each shelf: what it serves, and what is wrong."""
        return [_status(reader) for _, reader in sorted(self._readers.items())]

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


def _status(shelf: ShelfReader) -> dict[str, Any]:
    status, entry, trouble = shelf.status(), shelf.entry, shelf.trouble
    if trouble is not None:
        state = "degraded"
    elif shelf.generations is None:
        state = "opening"
    else:
        state = "ok" if status.generation else "no_artifact"
    return {
        "shelf": shelf.name.removeprefix("main."),
        "table": shelf.name.partition("@")[0].removeprefix("main."),
        "state": state,
        "model": shelf.model,
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
