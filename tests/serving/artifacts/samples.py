"""Small artifacts for tests: rows with words, a chunk or two of each, vectors that mean nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from frazil.serving.artifacts import CHUNK_SCHEMA, ArtifactModel, ArtifactSource, Manifest, SourceState
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.artifacts.parts import ArtifactPart, DuckPart
from frazil.serving.artifacts.write import write_artifact
from tests.serving.artifacts.exact_part import ExactPart

TABLE = "main.notes"
DIMS = 8
SCHEMA = pa.schema([("_id", pa.string()), ("_seq", pa.int64()), ("title", pa.string()), ("body", pa.string())])
WORDS = "ice river floe drift winter harbour signal lantern rope keel".split()
PARTS: tuple[ArtifactPart, ...] = (ExactPart(), DuckPart(dims=DIMS))


def row_batches(rows: int, *, salt: str = "", size: int = 7) -> Iterator[pa.RecordBatch]:
    for at in range(0, rows, size):
        numbers = range(at, min(at + size, rows))
        bodies = [f"{salt} {WORDS[n % 10]} {WORDS[n // 10 % 10]} {n}" for n in numbers]
        ids, titles = [f"id-{n}" for n in numbers], [f"title {n}" for n in numbers]
        yield pa.record_batch([ids, list(numbers), titles, bodies], schema=SCHEMA)


def chunk_batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Two chunks of each even row, one of each odd row, but none of every fifth."""
    pieces = [(row, number) for row in range(rows) if row % 5 for number in range(2 - row % 2)]
    for at in range(0, len(pieces), 11):
        some = pieces[at : at + 11]
        texts = [f"{WORDS[row % 10]} {number}" for row, number in some]
        columns = [[row for row, _ in some], [number for _, number in some], [0] * len(some), [9] * len(some), texts]
        yield pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, CHUNK_SCHEMA, strict=True)],
            schema=CHUNK_SCHEMA,
        )


def chunks_of(rows: int) -> int:
    return sum(batch.num_rows for batch in chunk_batches(rows))


def vector_blocks(number: int, *, seed: int = 1, dims: int = DIMS, size: int = 13) -> Iterator[Vectors]:
    random = np.random.default_rng(seed)
    for at in range(0, number, size):
        yield random.standard_normal((min(size, number - at), dims), dtype=np.float32) * 3


def source(
    rows: int = 40,
    *,
    watermark: int = 1 << 20,
    stream: str = "stream-1",
    salt: str = "",
    seed: int = 1,
    quarantined: int = 0,
    vectors: Iterable[Vectors] | None = None,
) -> ArtifactSource:
    return ArtifactSource(
        table=TABLE,
        cut=SourceState(stream, watermark, snapshot_id=watermark + 7, table_id="uuid-1"),
        schema=SCHEMA,
        rows=row_batches(rows, salt=salt),
        chunks=chunk_batches(rows),
        vectors=vector_blocks(chunks_of(rows) - quarantined, seed=seed) if vectors is None else vectors,
        model=ArtifactModel("test", "1", DIMS),
        quarantined=quarantined,
        index={"kind": "flat"},
    )


class Bakery:
    """Builds artifacts below one folder, each in its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def bake(self, watermark: int = 1 << 20, *, salt: str = "", seed: int = 1) -> tuple[Path, Manifest]:
        self._number += 1
        folder = self._folder / f"build-{self._number}"
        return folder, write_artifact(source(watermark=watermark, salt=salt, seed=seed), folder, [ExactPart()])
