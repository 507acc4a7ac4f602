"""A table of real sentences, embedded by the real model, and everything that serves it from one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.embedding import Model, open_model
from frazil.events.declaration import Chunking
from frazil.serving.artifacts import CHUNK_SCHEMA, ArtifactEntry, ArtifactSource, LocalCopies, Shelf, SourceState
from frazil.serving.artifacts import ArtifactModel as BuiltModel
from frazil.serving.artifacts.parts import IndexPart, TextPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.search import Allowed, Searchable, SearchQuery, SearchResult, SearchState, ServedGenerations
from frazil.serving.text import TextLayout
from frazil.serving.vectors.config import IndexConfig
from frazil.storage import Warehouse
from tests.serving.artifacts.killing import Place
from tests.serving.artifacts.samples import TABLE
from tests.serving.sentences import sentences

SCHEMA = pa.schema([("_id", pa.string()), ("title", pa.string()), ("body", pa.string()), ("year", pa.int64())])
TEXT = ("title", "body")
Row = dict[str, Any]


def searchable(model: Model | None = None, **changed: Any) -> Searchable:
    told: dict[str, Any] = {
        "table": TABLE,
        "schema": SCHEMA,
        "key": ("_id",),
        "text": TEXT,
        "model": model or open_model("wordllama"),
        "chunk": Chunking(size=120, overlap=0, by="sentence"),
    }
    return Searchable(**{**told, **changed})


def document(number: int, *, salt: int = 0, pieces: int | None = None) -> Row:
    """A row of real sentences, one to three of them in its body."""
    some = sentences()
    at = (number * 7 + salt * 1009) % (len(some) - 8)
    length = 1 + (number + salt) % 3 if pieces is None else pieces
    return {
        "_id": f"d{number}",
        "title": " ".join(some[at + 5].split()[:4]),
        "body": " ".join(some[at : at + length]),
        "year": 2000 + (number + salt) % 20,
    }


def source(
    searched: Searchable, rows: Sequence[Mapping[str, Any]], watermark: int, cut: SourceState | None = None
) -> ArtifactSource:
    """What a builder would hand over: chunks with a vector first, in the order of the vectors."""
    pieces = searched.in_pieces(rows)
    good = [(at, piece.chunks[of]) for at, piece in enumerate(pieces) for of in piece.of]
    bad = [
        (at, chunk)
        for at, piece in enumerate(pieces)
        for number, chunk in enumerate(piece.chunks)
        if number not in piece.of
    ]
    chunks = [
        {"document": at, "number": chunk.number, "start": chunk.start, "end": chunk.end, "text": chunk.text}
        for at, chunk in good + bad
    ]
    model = searched.model
    return ArtifactSource(
        table=searched.table,
        cut=cut or SourceState("stream-1", watermark, snapshot_id=watermark + 7, table_id="uuid-1"),
        schema=searched.schema,
        rows=pa.Table.from_pylist(list(rows), schema=searched.schema).to_batches(),
        chunks=pa.Table.from_pylist(chunks, schema=CHUNK_SCHEMA).to_batches(),
        vectors=[np.concatenate([piece.vectors for piece in pieces])] if good else [],
        model=None if model is None else BuiltModel(model.name, model.version, model.dims),
        quarantined=len(bad) if model is not None else 0,
    )


def search(
    generations: ServedGenerations, ask: SearchQuery, allowed: Callable[[SearchState], Allowed] | None = None
) -> SearchResult:
    """One question over the current state; `allowed` judges the documents of that state."""
    with generations.reading() as state:
        return state.search(ask, None if allowed is None else allowed(state))


class World:
    """A shelf in a folder, builds onto it, and servings from it."""

    def __init__(self, folder: Path, searched: Searchable | None = None) -> None:
        self.folder = folder
        self.searched = searched or searchable()
        self.place = Place(folder / "catalog.db", Warehouse(f"file://{folder}/warehouse"))
        self.shelf: Shelf = self.place.shelf()
        self._builds = 0

    def build(
        self, rows: Sequence[Mapping[str, Any]], watermark: int, config: IndexConfig | None = None
    ) -> ArtifactEntry:
        self._builds += 1
        folder = self.folder / f"build-{self._builds}"
        parts = [IndexPart(config, threads=1)] if self.searched.model is not None else []
        layout = TextPart(TextLayout(self.searched.text))
        write_artifact(source(self.searched, rows, watermark), folder, [*parts, layout])
        return self.shelf.publish(folder)

    def copies(self, **options: Any) -> LocalCopies:
        return LocalCopies(self.folder / "cache", self.place.objects(), TABLE, **options)

    def serving(self, **options: Any) -> ServedGenerations:
        return ServedGenerations(self.searched, self.copies(), **options)


@cache
def corpus(count: int) -> tuple[Row, ...]:
    """One sentence each."""
    return tuple(
        {"_id": f"s{number}", "title": f"t{number}", "body": text, "year": 2000 + number % 20}
        for number, text in enumerate(sentences()[:count])
    )
