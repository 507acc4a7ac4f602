"""A table of the vector set that is served in this process: a shelf in a folder, builds onto it, swaps from it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.processes import settings_in
from benchmarks.vector_set import DIMS, Floats, VectorSet
from frazil.errors import FrazilError
from frazil.runtime import open_the_lake, open_warehouse
from frazil.serving import SearchSettings
from frazil.serving.artifacts import (
    CHUNK_SCHEMA,
    PREFIX,
    ArtifactEntry,
    ArtifactModel,
    ArtifactSource,
    LocalCopies,
    Manifest,
    Shelf,
    SourceState,
    open_shelf,
)
from frazil.serving.artifacts.parts import ArtifactPart, DuckPart, IndexPart, TextPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.search import Searchable, ServedGenerations
from frazil.serving.text import TextLayout
from frazil.storage import open_objects

TABLE = "main.sentences"
SCHEMA = pa.schema([("_id", pa.string()), ("body", pa.string()), ("slot", pa.int64())])
_BATCH = 8192


class GivenVectors:
    """The model of vectors that come with their rows: it is never asked."""

    name, version, dims = "own", "1", DIMS

    def embed(self, texts: Sequence[str]) -> Floats:
        raise FrazilError("a query of the benchmark has its vector")


@dataclass(frozen=True)
class Built:
    """One artifact, from its source to the shelf: the seconds of every step."""

    entry: ArtifactEntry
    manifest: Manifest
    seconds: dict[str, float]


class ServedSet:
    """Any number of generations of the same sentences."""

    def __init__(self, folder: Path, made: VectorSet, shelf: Shelf, copies: LocalCopies) -> None:
        self.made = made
        self.searchable = Searchable(
            table=TABLE, schema=SCHEMA, key=("_id",), text=("body",), model=GivenVectors(), vector="vector"
        )
        self.serving = ServedGenerations(self.searchable, copies)
        self._folder = folder
        self._shelf = shelf
        self._builds = 0

    def build(self, *, told: str = "", watermark: int = 100) -> Built:
        """All parts of an artifact, brought to the shelf. `told` ends every sentence, to tell generations apart."""
        self._builds += 1
        folder = self._folder / f"build-{self._builds}"
        parts: list[ArtifactPart] = [IndexPart(), TextPart(TextLayout(("body",))), DuckPart(dims=DIMS)]
        began = time.perf_counter()
        manifest = write_artifact(self._source(told, watermark), folder, parts)
        built = time.perf_counter()
        entry = self._shelf.publish(folder)
        published = time.perf_counter()
        self._shelf.promote(entry.generation)
        seconds = {
            **manifest.seconds,
            "sync, less what ran at once": built - began - sum(manifest.seconds.values()),
            "publish": published - built,
            "promote": time.perf_counter() - published,
        }
        return Built(entry, manifest, seconds)

    def _source(self, told: str, watermark: int) -> ArtifactSource:
        return ArtifactSource(
            table=TABLE,
            cut=SourceState("bench", watermark, snapshot_id=watermark, table_id="bench"),
            schema=SCHEMA,
            rows=self._rows(told),
            chunks=self._chunks(),
            vectors=(self.made.vectors[start : start + _BATCH] for start in self._starts()),
            model=ArtifactModel(GivenVectors.name, GivenVectors.version, DIMS),
        )

    def _starts(self) -> range:
        return range(0, self.made.rows, _BATCH)

    def _rows(self, told: str) -> Iterator[pa.RecordBatch]:
        for start in self._starts():
            texts = self.made.texts[start : start + _BATCH]
            ids = [f"s{number}" for number in range(start, start + len(texts))]
            slots = self.made.slots[start : start + len(texts)]
            yield pa.record_batch([ids, [text + told for text in texts], pa.array(slots)], schema=SCHEMA)

    def _chunks(self) -> Iterator[pa.RecordBatch]:
        for start in self._starts():
            texts = self.made.texts[start : start + _BATCH]
            numbers = np.arange(start, start + len(texts))
            zeros = np.zeros(len(texts), np.int32)
            ends = np.array([len(text) for text in texts], np.int32)
            columns = [pa.array(numbers), pa.array(zeros), pa.array(zeros), pa.array(ends), pa.array(texts)]
            yield pa.RecordBatch.from_arrays(columns, schema=CHUNK_SCHEMA)


@contextmanager
def served_set(folder: Path, made: VectorSet) -> Iterator[ServedSet]:
    settings = settings_in(folder)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    lake, warehouse = open_the_lake(settings), open_warehouse(settings)
    shelf = open_shelf(lake.registry, warehouse, TABLE, SearchSettings())
    served = ServedSet(folder, made, shelf, LocalCopies(folder / "copies", open_objects(warehouse, PREFIX), TABLE))
    try:
        yield served
    finally:
        served.serving.close()
        lake.close()
