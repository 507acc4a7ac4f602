"""Build plan, decided before the build begins: it crosses a process border, and holds the store's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.embedding import OWN
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import FilePlan, FileRange
from frazil.registry import ProgressCallback
from frazil.serving.artifacts.manifest import ArtifactModel, SourceState
from frazil.serving.vectors.config import IndexConfig


@dataclass(frozen=True)
class Files:
    """Some files of one table."""

    plan: FilePlan
    ranges: tuple[FileRange, ...]


@dataclass(frozen=True)
class Origin:
    """Up to where the table of vectors was read for a build."""

    embeddings: str
    """Its uuid."""
    snapshot_id: int | None
    sequence: int


@dataclass(frozen=True)
class BuildPlan:
    shelf: str
    spec: TableSpec
    cut: SourceState
    model: ArtifactModel
    origin: Origin
    rows: Files
    vectors: Files
    """What the kept vectors do not cover; all, where there are none."""
    older: Files
    """The rest: looked into for chunks that neither has."""
    refused: Files
    kept: Path | None
    """The folder of vectors that an earlier build on this machine kept."""
    index: IndexConfig | None
    """None: by the number of vectors."""
    vss: bool
    described: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, for the manifest."""

    @property
    def is_own(self) -> bool:
        return self.model.name == OWN


@dataclass(frozen=True)
class BuildOrder:
    """The task of the child process that builds."""

    plan: BuildPlan
    place: Path
    """An empty folder."""
    generation: str

    @property
    def artifact(self) -> Path:
        return self.place / "artifact"

    @property
    def spill(self) -> Path:
        """What is on its way to the artifact."""
        return self.place / "spill"

    def run(self, report_progress: ProgressCallback) -> dict[str, Any]:
        from frazil.serving.builds.build_artifact import build_artifact  # loads the engines, which only a child needs

        for folder in (self.artifact, self.spill):
            folder.mkdir()
        return build_artifact(self, report_progress)
