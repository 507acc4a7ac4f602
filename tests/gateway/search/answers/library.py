"""Shelves for tests: artifacts built from the lake's rows as they are committed, and served from one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.embedding import Model, open_model
from frazil.gateway.search import ShelfReaders
from frazil.lake.catalog import Lake, LakeTable, load_entity
from frazil.serving import Profile, SearchSettings
from frazil.serving.artifacts import (
    CHUNK_SCHEMA,
    PREFIX,
    ArtifactEntry,
    ArtifactSource,
    LocalCopies,
    Shelf,
    SourceState,
    open_shelf,
)
from frazil.serving.artifacts import ArtifactModel as BuiltModel
from frazil.serving.artifacts.parts import DuckPart, IndexPart, TextPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.search import FreshDocuments, Searchable, ServedGenerations
from frazil.serving.text import TextLayout
from frazil.storage import open_objects
from tests.entity_model import history_rows, replayed


class Library(ShelfReaders):
    """Shelf readers in small: nothing is followed, and generations are swapped when the test says so."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.cache = folder / "cache"
        self._folder = folder
        self._served: dict[str, ServedGenerations] = {}
        self._builds = 0
        self.opened: dict[str, Model | None] = {}
        """By table, instead of the usual model."""
        self.limits: dict[str, int] = {}

    async def start(self) -> None:
        """There is nothing to follow."""

    async def close(self) -> None:
        for serving in self._served.values():
            serving.close()

    @property
    def is_starting(self) -> bool:
        return False

    def status(self) -> list[dict[str, Any]]:
        return []

    async def of(self, table: LakeTable, profile: Profile | None = None) -> ServedGenerations:
        return self.served(table.name)

    def served(self, name: str) -> ServedGenerations:
        if name not in self._served:
            searchable = self._searchable(name)
            copies = LocalCopies(self.cache, open_objects(self.lake.warehouse, PREFIX), name)
            limit = self.limits.get(name, 50_000)
            self._served[name] = ServedGenerations(
                searchable, copies, fresh=FreshDocuments(searchable, max_documents=limit), drain_seconds=1.0
            )
        return self._served[name]

    def _searchable(self, name: str) -> Searchable:
        table = self.lake.table(name)
        spec = load_entity(self.lake, name).spec if table.spec.kind == "entity" else table.spec
        search = spec.searched
        assert search is not None
        model = self.opened[name] if name in self.opened else open_model("wordllama")
        return Searchable(
            table=name,
            schema=spec.row_schema(),
            key=spec.key if spec.kind == "entity" else ("_id",),
            text=spec.text,
            model=model,
            chunk=search.chunk,
            vector=search.vector,
        )

    def shelf(self, name: str) -> Shelf:
        return open_shelf(self.lake.registry, self.lake.warehouse, name, SearchSettings())

    def build(self, name: str) -> ArtifactEntry:
        """An artifact of what is committed, published."""
        table = self.lake.table(name)
        searchable = self.served(name).searchable
        if table.spec.kind == "entity":
            entity = load_entity(self.lake, name)
            table = entity.history
            rows = list(replayed(entity, history_rows(self.lake, name)).there().values()) if table.snapshot_id else []
        else:
            rows = pa.Table.from_batches(list(table.scan()), searchable.schema).to_pylist()
        cut = SourceState(table.stream_identity, table.watermark, table.snapshot_id, table.uuid)
        self._builds += 1
        folder = self._folder / f"build-{self._builds}"
        parts: list[Any] = [DuckPart()]
        if searchable.model is not None:
            parts.append(IndexPart(threads=1))
        if searchable.text:
            parts.append(TextPart(TextLayout(searchable.text)))
        write_artifact(_source(searchable, rows, cut), folder, parts)
        return self.shelf(name).publish(folder)

    def swap(self, name: str, entry: ArtifactEntry, *, going_back: bool = False) -> None:
        self.served(name).swap(entry, going_back=going_back)


def _source(searched: Searchable, rows: Sequence[dict[str, Any]], cut: SourceState) -> ArtifactSource:
    pieces = searched.in_pieces(rows)
    good = [(at, cut_.chunks[of]) for at, cut_ in enumerate(pieces) for of in cut_.of]
    bad = [
        (at, chunk)
        for at, cut_ in enumerate(pieces)
        for number, chunk in enumerate(cut_.chunks)
        if number not in cut_.of
    ]
    chunks = [
        {"document": at, "number": chunk.number, "start": chunk.start, "end": chunk.end, "text": chunk.text}
        for at, chunk in good + bad
    ]
    model = searched.model
    return ArtifactSource(
        table=searched.table,
        cut=cut,
        schema=searched.schema,
        rows=pa.Table.from_pylist(list(rows), schema=searched.schema).to_batches(),
        chunks=pa.Table.from_pylist(chunks, schema=CHUNK_SCHEMA).to_batches(),
        vectors=[np.concatenate([cut_.vectors for cut_ in pieces])] if good else [],
        model=None if model is None else BuiltModel(model.name, model.version, model.dims),
        quarantined=len(bad) if model is not None else 0,
    )
