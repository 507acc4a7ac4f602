"""Build plan, decided before the build begins: it crosses a process border, and holds the store's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.embedding import OWN
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import FilePlan, FileRange
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
    """What the process that builds is told."""

    plan: BuildPlan
    artifact: Path
    spill: Path
    generation: str
    parent: int
    """The process that waits for it."""
