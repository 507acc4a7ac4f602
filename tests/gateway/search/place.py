"""A lake with a searched table, artifacts of it as a builder would make them, and gateways' halves that serve it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frazil.bus import EventBus
from frazil.embedding import OWN, Model, ModelSettings, open_model
from frazil.events.declaration import history_of, parse_table
from frazil.gateway.search import ShelfReaders
from frazil.gateway.search.query_models import OwnVectors
from frazil.gateway.search.shelf_follower import FollowPace
from frazil.gateway.search.shelf_reader import SearchedTable
from frazil.lake.catalog import Lake, LakeTable
from frazil.serving import Profile, SearchSettings
from frazil.serving.artifacts import MANIFEST, ArtifactEntry, Shelf, SourceState, announce, decode_manifest, open_shelf
from frazil.serving.artifacts.parts import ArtifactPart, IndexPart, TextPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.search import ServedGenerations
from frazil.storage import Journal
from frazil.tables import TableDirectory, create_table
from tests.serving.search.world import document, source

NOTES: dict[str, Any] = {
    "name": "notes",
    "columns": {"title": "string", "body": "string", "year": "long"},
    "text": ["title", "body"],
    "search": {"chunk": {"size": 120, "overlap": 0, "by": "sentence"}},
}
SHELF = "main.notes"
# Nothing happens by the clock: what is heard is acted upon, and nothing else.
BY_WORD = FollowPace(look_seconds=3600, canary_seconds=3600, renew_seconds=3600, retry_seconds=0.05)
# And here all by the clock.
BY_CLOCK = FollowPace(look_seconds=0.05, canary_seconds=3600, renew_seconds=0.1, retry_seconds=0.02, linger_seconds=0.1)
PATIENCE_SECONDS = 120.0
_numbers = itertools.count(1)


@dataclass
class Place:
    folder: Path
    lake: Lake
    bus: EventBus
    settings: SearchSettings = field(default_factory=SearchSettings)
    models: dict[str, ModelSettings] = field(default_factory=dict)

    async def declare(self, **changed: Any) -> LakeTable:
        await create_table(self.bus, self.lake, parse_table({**NOTES, **changed}))
        return self.table(changed.get("name", "notes"))

    def table(self, name: str = "notes") -> LakeTable:
        return self.lake.table(f"main.{name}")

    def shelf(self, name: str = SHELF) -> Shelf:
        return open_shelf(self.lake.registry, self.lake.warehouse, name, self.settings)

    @property
    def bucket(self) -> Path:
        return Path(self.lake.warehouse.folder()) / "_artifacts"

    def build(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        watermark: int = 100,
        name: str = SHELF,
        model: str = "wordllama",
        version: str | None = None,
        dims: int = 3,
        spoil: Callable[[Path], None] | None = None,
    ) -> ArtifactEntry:
        """A candidate on the shelf. `spoil` may change the folder before it is published."""
        table = self.lake.table(name.partition("@")[0])
        opened: Model = OwnVectors(dims) if model == OWN else open_model(model)
        searched = SearchedTable.of(table, table.spec).searchable(name, opened, own=model == OWN)
        fed = self.lake.table(history_of(table.name)) if table.spec.kind == "entity" else table
        cut = SourceState(fed.stream_identity, watermark, watermark + 7, table.uuid)
        made = source(searched, rows, watermark, cut)
        if version is not None:
            assert made.model is not None
            made = replace(made, model=replace(made.model, version=version))
        folder = self.folder / f"build-{next(_numbers)}"
        parts: list[ArtifactPart] = [
            IndexPart(None, threads=1),
            *([TextPart(searched.layout)] if searched.layout else []),
        ]
        write_artifact(made, folder, parts)
        if spoil is not None:
            spoil(folder)
        return self.shelf(name).publish(folder)

    def of_year(self, year: int, *, count: int = 8, **options: Any) -> ArtifactEntry:
        """An artifact whose every row says which it is."""
        return self.build([{**document(at, salt=year), "year": year} for at in range(count)], **options)

    async def promote(
        self, entry: ArtifactEntry, *, name: str = SHELF, say: bool = True, **options: Any
    ) -> ArtifactEntry:
        promoted = await asyncio.to_thread(lambda: self.shelf(name).promote(entry.generation, **options))
        if say:
            await announce(self.bus, name, entry.generation)
        return promoted

    async def rollback(self, reason: str = "not liked", *, name: str = SHELF) -> None:
        entry = await asyncio.to_thread(self.shelf(name).rollback, reason)
        assert entry is not None
        await announce(self.bus, name, entry.generation)

    @asynccontextmanager
    async def serving(
        self, pace: FollowPace = BY_WORD, *, reader: str = "one", cache: str | None = None
    ) -> AsyncIterator[Half]:
        directory = TableDirectory(self.lake)
        await directory.start()
        tables = ShelfReaders(
            lake=self.lake,
            bus=self.bus,
            directory=directory,
            models=self.models,
            settings=self.settings,
            cache=self.folder / f"cache-{cache or reader}",
            journal=Journal(self.folder / "journal"),
            reader=reader,
            pace=pace,
        )
        await tables.start()
        try:
            yield Half(self, directory, tables)
        finally:
            await tables.close()
            await directory.close()

    def journal(self, kind: str) -> list[dict[str, Any]]:
        return Journal(self.folder / "journal").read(kind=kind)


@dataclass
class Half:
    """One gateway's half."""

    place: Place
    directory: TableDirectory
    tables: ShelfReaders

    async def of(self, profile: Profile | None = None, name: str = "notes") -> ServedGenerations:
        await self.directory.refresh()
        return await self.tables.of(await self.directory.table(f"main.{name}"), profile)

    def told(self, shelf: str = "notes") -> dict[str, Any]:
        return next((one for one in self.tables.status() if one["shelf"] == shelf), {})

    async def until(self, **wanted: Any) -> dict[str, Any]:
        """Until the status of the shelf has these words."""
        found: dict[str, Any] = await until(lambda: self._like(wanted), str(wanted))
        return found

    def _like(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        told = self.told()
        return told if told and all(told.get(word) == value for word, value in wanted.items()) else None

    async def serves(self, entry: ArtifactEntry) -> None:
        await self.until(generation=entry.generation)


async def until(look: Callable[[], Any], what: str, *, seconds: float = PATIENCE_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came about: {what}"
        await asyncio.sleep(0.01)
    return found


def wrong_canaries(folder: Path) -> None:
    """Every byte will be what was published, and the index answers otherwise than its builder says."""
    path = folder / MANIFEST
    manifest = decode_manifest(path.read_bytes())
    canaries = tuple(replace(canary, expected=canary.expected[::-1]) for canary in manifest.canaries)
    assert canaries != manifest.canaries
    path.write_bytes(replace(manifest, canaries=canaries).encode())


def other_engine(folder: Path) -> None:
    path = folder / MANIFEST
    manifest = decode_manifest(path.read_bytes())
    path.write_bytes(replace(manifest, engines={**manifest.engines, "faiss": "99.0.0"}).encode())


@contextmanager
def moved_away(path: Path) -> Iterator[None]:
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)
