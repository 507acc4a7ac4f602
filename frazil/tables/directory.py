"""Table directory: the tables of the catalog, followed in memory, a moment old at most."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from frazil.errors import FrazilError, Unavailable, table_not_found
from frazil.events.declaration import TableSpec, history_of
from frazil.lake.catalog import Entity, Lake, LakeTable, alter_entity, pair_entity
from frazil.lake.recovery import repair_id
from frazil.registry import ChangeCount

log = logging.getLogger(__name__)

Source = tuple[str, str, str]


def source_of(table: LakeTable) -> Source:
    """What a writer is bound to: this very table, fed from this very stream, not repaired since.

    The base of an entity is fed from its history.
    """
    return table.uuid, table.history_uuid or table.stream_identity, repair_id(table)


class TableDirectory:
    """A cache of the catalog that follows it: what other processes declare, alter, drop and commit is seen here too.

    While somebody waits for a commit, it looks more often. When the catalog cannot be reached, the tables stay as they
    were last seen: taking in events does not need it.
    """

    def __init__(self, lake: Lake, *, poll_seconds: float = 0.25, eager_seconds: float = 0.02) -> None:
        self.lake = lake
        self.unreachable: FrazilError | None = None
        """Why the last look at the catalog failed."""
        self._poll_seconds = poll_seconds
        self._eager_seconds = eager_seconds
        self._tables: dict[str, LakeTable] = {}
        self._broken: dict[str, tuple[str, FrazilError]] = {}
        self._looking = asyncio.Lock()
        self._next_look: asyncio.Task[None] | None = None
        self._seen: ChangeCount | None = None
        """The catalog's pulse just before the last look, if that succeeded."""
        self._waiting = 0
        self._eager = asyncio.Event()
        self._changed = asyncio.Event()
        self._released = False
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look once, then follow. A catalog that cannot be reached yet is looked for in the background."""
        with contextlib.suppress(Unavailable):
            await self.refresh()
        self._following = asyncio.create_task(self._follow(), name="follow the catalog")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    def release(self) -> None:
        """Let nobody wait any longer: the process is about to stop."""
        self._released = True
        self._changed.set()

    def tables(self, *, histories: bool = False) -> list[LakeTable]:
        """The tables that were declared; with `histories` also those that frazil keeps beside them."""
        return [table for _, table in sorted(self._tables.items()) if histories or table.spec.kind != "history"]

    def broken(self) -> dict[str, FrazilError]:
        """Tables that are in the catalog and cannot be loaded, with the reason."""
        return {name: error for name, (_, error) in sorted(self._broken.items())}

    def known(self, name: str, source: Source) -> LakeTable | None:
        """The table as last seen, if it is still this one, fed from this stream."""
        table = self._tables.get(name)
        return table if table is not None and source_of(table) == source else None

    def seen(self, name: str) -> LakeTable | None:
        """The table as last seen, without a look; None if none was."""
        return self._tables.get(name)

    async def table(self, name: str) -> LakeTable:
        """The table as last seen. A name that is not known is looked for before it is `NotFound`."""
        if name not in self._tables:
            await self.refresh()
        if name in self._broken:
            raise self._broken[name][1]
        if name not in self._tables:
            raise table_not_found(name)
        return self._tables[name]

    async def fed(self, name: str) -> LakeTable:
        """The table that events of this name go to: its own, or the history of an entity."""
        table = await self.table(name)
        return (await self.entity(table)).history if table.spec.kind == "entity" else table

    async def entity(self, base: LakeTable) -> Entity:
        """The entity of this base, as last seen."""
        if (history := self._tables.get(history_of(base.name))) is None:
            await self.refresh()
            base, history = await self.table(base.name), self._tables.get(history_of(base.name))
        return pair_entity(base, history)

    def spec_of(self, table: LakeTable) -> TableSpec:
        """The declaration as its owner knows it; that of an entity is up to date in its history first."""
        history = self._tables.get(history_of(table.name)) if table.spec.kind == "entity" else None
        known = history is not None and history.uuid == table.history_uuid
        return pair_entity(table, history).spec if known else table.spec

    async def alter(self, name: str, change: Callable[[TableSpec], TableSpec]) -> LakeTable:
        """Change the declaration in the catalog, and see it here at once."""
        is_entity = name in self._tables and self._tables[name].spec.kind == "entity"
        async with self._looking:
            if is_entity:
                entity = await asyncio.to_thread(alter_entity, self.lake, name, change)
                self._tables[entity.history.name] = entity.history
                self._tables[name] = entity.base
                return entity.base
            altered = await asyncio.to_thread(self.lake.alter, name, change)
            self._tables[name] = altered
            return altered

    async def refresh(self) -> None:
        """See what the catalog has now. Callers that come while it is being read share the next read."""
        if self._seen is not None and self._seen == self.lake.pulse.beat():
            return
        if self._next_look is None or self._next_look.done():
            self._next_look = asyncio.create_task(self._look(), name="look at the catalog")
            self._next_look.add_done_callback(_retrieved)
        # Whoever stops waiting does not stop it for the others.
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        async with self._looking:
            self._next_look = None  # callers from now on may want more than this read finds
            beat, self._seen = self.lake.pulse.beat(), None
            try:
                locations, loaded = await asyncio.to_thread(self._changed_tables)
            except FrazilError as error:
                self.unreachable = error
                raise
            self.unreachable, self._seen = None, beat
            gone = self._tables.keys() - locations.keys()
            if loaded or gone:
                self._tables = {
                    name: loaded.get(name) or self._tables[name]
                    for name in locations
                    if name in loaded or (name in self._tables and name not in self._broken)
                }
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()

    def _changed_tables(self) -> tuple[dict[str, str], dict[str, LakeTable]]:
        """Where every table is, and those that moved."""
        locations = self.lake.locations()
        return locations, self._load_changed(locations)

    def _load_changed(self, locations: dict[str, str]) -> dict[str, LakeTable]:
        loaded: dict[str, LakeTable] = {}
        self._broken = {name: entry for name, entry in self._broken.items() if locations.get(name) == entry[0]}
        # In the order of their names: an entity comes before its history, which then has all that is folded.
        for name, location in sorted(locations.items()):
            known = self._tables.get(name)
            if (known is not None and known.metadata_location == location) or name in self._broken:
                continue
            try:
                loaded[name] = self.lake.table(name, location=location)
            except Unavailable:
                raise
            except FrazilError as error:
                if error.code == "table_not_found":
                    continue
                log.warning("table load failed: %s", error, extra={"table": name})
                self._broken[name] = (location, error)
        return loaded

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                async with asyncio.timeout(self._eager_seconds if self._waiting else self._poll_seconds):
                    await self._eager.wait()
            except TimeoutError:
                pass  # nobody hurries us
            self._eager.clear()
            try:
                await self.refresh()
                failing = False
            except FrazilError as error:
                if not failing:
                    log.warning("catalog read failed: %s", error)
                failing = True
            except Exception:
                # Whatever it is: without this task no commit is seen any more, and all who wait for one wait in vain.
                if not failing:
                    log.exception("catalog read failed")
                failing = True

    async def until(
        self, name: str, reached: Callable[[LakeTable], bool], *, timeout_seconds: float
    ) -> tuple[LakeTable, bool]:
        """Wait for the table to be in some state; the table as last seen, and whether it is."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_seconds):
                self._eager.set()
                while True:
                    changed = self._changed
                    if reached(await self.table(name)) or self._released:
                        break
                    await changed.wait()
        except TimeoutError:
            pass  # the second value of the answer says so
        finally:
            self._waiting -= 1
        table = await self.table(name)
        return table, reached(table)


def _retrieved(look: asyncio.Task[None]) -> None:
    """Those who waited raise its failure; perhaps nobody waits any longer."""
    if not look.cancelled():
        look.exception()
