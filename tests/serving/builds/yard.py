"""Where builds are tried: a real lake, and services that embed and fold in this process instead of Spark's."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.errors import FrazilError
from frazil.events.declaration import embeddings_of
from frazil.lake.catalog import Lake, LakeTable, load_entity
from frazil.registry import Job, ProgressCallback, finish_job, submit_job
from frazil.requests import BUILD, EMBED, EmbedRequest
from frazil.serving import SearchSettings
from frazil.serving.artifacts import MANIFEST, ArtifactEntry, LocalCopies, Manifest, Shelf, decode_manifest, open_shelf
from frazil.serving.artifacts.contents import Contents
from frazil.serving.artifacts.parts import IndexPart
from frazil.serving.artifacts.verify import verify_artifact
from frazil.serving.builds import BuildHandler, BuildServices
from frazil.serving.child_tasks import ChildCodes, ChildTask, ChildTasks
from tests.entity_model import fold
from tests.pipeline.embeddings.place import Place


class InProcess(ChildTasks):
    """The child's work in this process, pickled on the way as a pipe does."""

    def __init__(self) -> None:
        super().__init__(ChildCodes("lost", "killed", "out_of_memory"))

    def run(
        self,
        task: ChildTask[Any],
        *,
        timeout_seconds: float | None = None,
        report_progress: ProgressCallback = lambda progress: None,
    ) -> Any:
        self.check()
        return pickle.loads(pickle.dumps(task)).run(report_progress)  # noqa: S301


@dataclass
class Yard:
    lake: Lake
    folder: Path
    settings: SearchSettings = field(default_factory=SearchSettings)
    own_process: bool = False
    models: Mapping[str, Any] = field(default_factory=dict)
    announced: list[tuple[str, str]] = field(default_factory=list)
    embeddings_asked: int = 0

    def __post_init__(self) -> None:
        self.place = Place(self.lake, self.models)
        self.builds = BuildHandler(
            self.lake, self.settings, self.folder / "builds", BuildServices(self.fold, self.embed, self.say)
        )
        if not self.own_process:
            self.builds.tasks = InProcess()

    def fold(self, name: str) -> None:
        entity = load_entity(self.lake, name)
        if entity.unfolded_rows:
            fold(self.lake, name)

    def embed(self, table: LakeTable, model: str) -> Job:
        """As the lane of embeddings does it, before the build looks again."""
        self.embeddings_asked += 1
        is_shadow = model not in ("own", table.spec.searched.model if table.spec.searched else "")
        asked = EmbedRequest(table=table.name, model=model, shadow=is_shadow)
        job = submit_job(self.lake.registry, EMBED.name, table.name, asked.params(), asked_by="build")
        try:
            result = {"state": "done", **self.place.job.run(job, lambda progress: None)}
        except FrazilError as error:
            result = {"state": "failed", **error.body()}
        finish_job(self.lake.registry, job, result)
        return job

    def say(self, shelf: str, generation: str) -> None:
        self.announced.append((shelf, generation))

    def ask(self, table: str = "notes", **options: Any) -> Job:
        return submit_job(
            self.lake.registry, BUILD.name, f"main.{table}", {"table": table, **options}, asked_by="someone"
        )

    def build(self, table: str = "notes", **options: Any) -> dict[str, Any]:
        job = self.ask(table, **options)
        told = self.builds.run(job, lambda progress: None)
        finish_job(self.lake.registry, job, {"state": "done", **told})
        return told

    def shelf(self, name: str = "main.notes") -> Shelf:
        return open_shelf(self.lake.registry, self.lake.warehouse, name, self.settings)

    def current(self, name: str = "main.notes") -> ArtifactEntry | None:
        return self.shelf(name).register().current

    def fetched(self, name: str = "main.notes") -> Held:
        """The current artifact, as a server has it."""
        entry, shelf = self.current(name), self.shelf(name)
        assert entry is not None
        copy = LocalCopies(self.folder / "copies", shelf.objects, name).fetch(entry)
        verify_artifact(copy.folder, table=name, seal=entry.seal, parts=[IndexPart()])
        held = Held(copy.manifest, Contents(copy.folder), copy.folder)
        copy.release()
        return held

    def vector_files(self, name: str = "main.notes") -> list[str]:
        return [task.file.file_path for task in self.lake.table(embeddings_of(name)).iceberg.scan().plan_files()]


@dataclass(frozen=True)
class Held:
    """What an artifact holds, in plain values."""

    manifest: Manifest
    contents: Contents
    folder: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.contents.rows.to_pylist()
        return found

    @property
    def vectors(self) -> dict[tuple[Any, int, str], np.ndarray[Any, np.dtype[np.float32]]]:
        """Of each chunk that has one, by the row's id, the chunk's number and text."""
        chunks = self.contents.chunks.to_pylist()
        rows = self.contents.rows.select(["_id"]).to_pylist()
        names = [(rows[chunk["document"]]["_id"], chunk["number"], chunk["text"]) for chunk in chunks]
        return dict(zip(names, self.contents.vectors, strict=False))

    @property
    def without(self) -> list[str]:
        """The texts of the chunks that have no vector."""
        texts: list[str] = self.contents.chunks["text"].to_pylist()[len(self.contents.vectors) :]
        return texts


def manifest_of(shelf: Shelf, entry: ArtifactEntry) -> Manifest:
    return decode_manifest(shelf.objects.get(shelf.key(entry.generation, MANIFEST)))


def as_table(rows: list[dict[str, Any]], table: LakeTable) -> pa.Table:
    return pa.Table.from_pylist(rows, table.spec.row_schema())
