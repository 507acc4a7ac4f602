"""Dataset of a trial: the vectors of the artifact that is current, else those that the table has as rows.

Of many a sample is taken, the same for the same seed. They are written to a folder from which children map them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.embedding import OWN, document_ids
from frazil.errors import Conflict, NotFound
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import FilePlan, FileRange, plan_files, read_range, rows_by, whole_files
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import EmbeddingProgress, embedded_up_to, embeddings_table
from frazil.serving.artifacts.contents import CHUNKS, ROWS, Contents
from frazil.serving.artifacts.manifest import MANIFEST, decode_manifest, seal_of
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.artifacts.shelf import Shelf
from frazil.serving.artifacts.verify import ArtifactRefused, Fault
from frazil.serving.artifacts.write import hashed
from frazil.serving.trials.measure import VECTORS
from frazil.serving.trials.rule import CurrentIndex
from frazil.serving.vectors.exact_search import Floats

Ints = npt.NDArray[np.int64]
_STORED = pa.schema(
    [
        ("document", pa.string()),
        ("chunk", pa.int32()),
        ("position", pa.int64()),
        ("version", pa.string()),
        ("dims", pa.int32()),
    ]
)
_CONTENT = pa.schema([("text", pa.string()), ("vector", pa.list_(pa.float32()))])


@dataclass(frozen=True)
class Dataset:
    """Vectors in `folder`, and by ordinal the document and the text that each is of."""

    folder: Path
    shelf: str
    model: str
    version: str
    dims: int
    of_vectors: int
    source: str
    generation: str | None
    snapshot_id: int | None
    documents: list[str]
    texts: list[str]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def vectors(self) -> Floats:
        found: Floats = np.load(self.folder / VECTORS, mmap_mode="r")
        return found

    def body(self) -> dict[str, Any]:
        """As the journal has it."""
        return {
            "shelf": self.shelf,
            "model": self.model,
            "version": self.version,
            "dims": self.dims,
            "vectors": len(self),
            "of_vectors": self.of_vectors,
            "source": self.source,
            "generation": self.generation,
            "snapshot_id": self.snapshot_id,
        }


def model_of(spec: TableSpec) -> str:
    """The model that the table is searched with."""
    if spec.searched is None:
        raise NotFound(
            f"{spec.short_name!r} is not searched, so it has no vectors",
            code="not_searched",
            hint='declare it with columns of text, as in "text": ["title", "body"], or with a `vector`',
        )
    return OWN if spec.searched.vector is not None else spec.searched.model


def now_of(lake: Lake, table: LakeTable, shelf: Shelf, model: str) -> CurrentIndex:
    """What there is of the shelf's vectors, without reading one; `NotFound` if there are none."""
    entry = _current(shelf, model)
    if entry is not None and entry.model is not None:
        return CurrentIndex(shelf.table, model, entry.model.version, entry.model.dims, entry.counts.vectors)
    embeddings = embeddings_table(lake, table.name)
    state = embedded_up_to(embeddings, model)
    count = rows_by(embeddings, "model").get(model, 0) if embeddings is not None else 0
    if state is None or not count:
        raise _no_vectors(table, model)
    return CurrentIndex(shelf.table, model, state.version, state.dims, count)


def take(
    lake: Lake, table: LakeTable, shelf: Shelf, model: str, folder: Path, *, max_vectors: int, seed: int
) -> Dataset:
    """The vectors of the shelf's current artifact, if it is of this model; else those in the table of vectors."""
    entry = _current(shelf, model)
    if entry is not None:
        return _from_artifact(table.spec, shelf, entry, folder, max_vectors=max_vectors, seed=seed)
    return from_rows(lake, table, shelf.table, model, folder, max_vectors=max_vectors, seed=seed)


def _current(shelf: Shelf, model: str) -> ArtifactEntry | None:
    entry = shelf.register().current
    is_of_model = entry is not None and entry.model is not None and entry.model.name == model
    return entry if is_of_model and entry is not None and entry.counts.vectors else None


def _from_artifact(
    spec: TableSpec, shelf: Shelf, entry: ArtifactEntry, folder: Path, *, max_vectors: int, seed: int
) -> Dataset:
    copy = folder / "artifact"
    copy.mkdir(parents=True)
    _fetch(shelf, entry, copy)
    contents = Contents(copy)
    assert entry.model is not None
    chosen = sample(entry.counts.vectors, max_vectors, seed)
    if len(chosen) == len(contents.vectors):
        os.link(copy / VECTORS, folder / VECTORS)
    else:
        _save(folder / VECTORS, contents.vectors[chosen])
    chunks = contents.chunks.select(["document", "text"]).take(pa.array(chosen))
    numbers, back = np.unique(chunks["document"].to_numpy(), return_inverse=True)
    named = contents.rows.select(list(spec.key) if spec.kind == "entity" else ["_id"]).take(pa.array(numbers))
    names = document_ids(spec, named)
    return Dataset(
        folder,
        shelf.table,
        entry.model.name,
        entry.model.version,
        entry.model.dims,
        entry.counts.vectors,
        "artifact",
        entry.generation,
        entry.cut.snapshot_id,
        [names[at] for at in back.tolist()],
        chunks["text"].to_pylist(),
    )


def _fetch(shelf: Shelf, entry: ArtifactEntry, copy: Path) -> None:
    """The files that are needed here, each proven by the seal in the registry."""
    raw = shelf.objects.get(shelf.key(entry.generation, MANIFEST))
    if seal_of(raw) != entry.seal:
        raise ArtifactRefused(copy, [Fault("artifact_manifest_damaged", "its manifest is not the one published")])
    listed = {file.path: file for file in decode_manifest(raw).files}
    for path in (ROWS, CHUNKS, VECTORS):
        shelf.objects.get_file(shelf.key(entry.generation, path), copy / path)
    for file in hashed(copy, (ROWS, CHUNKS, VECTORS)):
        if file.sha256 != listed[file.path].sha256:
            raise ArtifactRefused(copy, [Fault("artifact_file_hash", f"{file.path} is not what its builder wrote")])


def from_rows(
    lake: Lake, table: LakeTable, shelf: str, model: str, folder: Path, *, max_vectors: int, seed: int
) -> Dataset:
    """The newest vector of each chunk in the table of vectors, of the version that the model has now."""
    stored = stored_rows(lake, table, model)
    return stored.dataset(shelf, stored.newest[sample(len(stored.newest), max_vectors, seed)], folder)


@dataclass(frozen=True)
class StoredDataset:
    """The chunks of one model in the table of vectors, without their vectors."""

    plan: FilePlan
    files: tuple[FileRange, ...]
    rows: pa.Table
    newest: Ints
    """The numbers of the rows that are the newest of their chunk, ascending."""
    state: EmbeddingProgress
    snapshot_id: int | None

    def documents(self) -> list[str]:
        """Of each of the newest."""
        names: list[str] = self.rows["document"].take(pa.array(self.newest)).to_pylist()
        return names

    def dataset(self, shelf: str, chosen: Ints, folder: Path) -> Dataset:
        folder.mkdir(parents=True, exist_ok=True)
        vectors, texts = _contents(self.plan, self.files, chosen, self.state.dims)
        _save(folder / VECTORS, vectors)
        return Dataset(
            folder,
            shelf,
            self.state.model,
            self.state.version,
            self.state.dims,
            len(self.newest),
            "rows",
            None,
            self.snapshot_id,
            self.rows["document"].take(pa.array(chosen)).to_pylist(),
            texts,
        )


def stored_rows(lake: Lake, table: LakeTable, model: str) -> StoredDataset:
    """What the table has of this model; `NotFound` if that is nothing, or its first run has not ended."""
    embeddings = embeddings_table(lake, table.name)
    state = embedded_up_to(embeddings, model)
    if embeddings is None or state is None:
        raise _no_vectors(table, model)
    plan, files = plan_files(lake, embeddings), whole_files(embeddings, {"model": model})
    rows = pa.concat_tables([_STORED.empty_table(), *(_read(plan, file, _STORED) for file in files)])
    newest = _newest(rows, state.version, state.dims)
    if not len(newest):
        raise _no_vectors(table, model)
    return StoredDataset(plan, tuple(files), rows, newest, state, embeddings.snapshot_id)


def _read(plan: FilePlan, file: FileRange, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([*read_range(plan, file, schema), schema.empty_table()])


def _newest(rows: pa.Table, version: str, dims: int) -> Ints:
    """The numbers of the rows that are the newest of their chunk, ascending."""
    versions, wide = rows["version"].to_pylist(), rows["dims"].to_pylist()
    latest: dict[tuple[str, int], int] = {}
    positions = rows["position"].to_pylist()
    for number, key in enumerate(zip(rows["document"].to_pylist(), rows["chunk"].to_pylist(), strict=True)):
        if (versions[number], wide[number]) != (version, dims):
            continue
        known = latest.get(key)
        if known is None or positions[known] <= positions[number]:
            latest[key] = number
    return np.array(sorted(latest.values()), dtype=np.int64)


def _contents(plan: FilePlan, files: Sequence[FileRange], chosen: Ints, dims: int) -> tuple[Floats, list[str]]:
    """The vectors and texts of these rows, counted over all files; of the others no more than a few at a time."""
    vectors = np.empty((len(chosen), dims), dtype=np.float32)
    texts: list[str] = []
    first = 0
    for file in files:
        for part in read_range(plan, file, _CONTENT):
            inside = chosen[(chosen >= first) & (chosen < first + part.num_rows)] - first
            first += part.num_rows
            if len(inside):
                kept = part.take(pa.array(inside)).combine_chunks()
                numbers = kept["vector"].combine_chunks().flatten().to_numpy()
                vectors[len(texts) : len(texts) + len(inside)] = numbers.reshape(len(inside), dims)
                texts += [text or "" for text in kept["text"].to_pylist()]
    if len(texts) != len(chosen):
        raise Conflict("the vectors changed while they were read", code="embeddings_moved", hint="try again")
    return vectors, texts


def sample(count: int, most: int, seed: int) -> Ints:
    """At most so many of `count` numbers, ascending; the same for the same seed."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False)).astype(np.int64)


def _save(path: Path, vectors: Floats) -> None:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(path, np.ascontiguousarray(vectors / np.where(lengths > 0, lengths, 1), dtype="<f4"))


def _no_vectors(table: LakeTable, model: str) -> NotFound:
    short = table.spec.short_name
    return NotFound(
        f"{short!r} has no vectors of {model!r}",
        code="model_not_found",
        hint=f"frazil embed {short} --model {model} --shadow",
    )
