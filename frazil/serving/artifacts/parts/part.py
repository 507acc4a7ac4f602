"""Part protocol of an artifact: each writes files from the contents, and answers once it is open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from frazil.serving.artifacts.contents import Contents
from frazil.serving.artifacts.manifest import Canary


class OpenPart(Protocol):
    @property
    def held(self) -> int:
        """How many rows, chunks or vectors it really holds, counted by the engine itself."""

    def answer(self, canary: Canary) -> tuple[int, ...]:
        """The ordinals that come first for this question, as many as the canary expects."""

    def close(self) -> None: ...


class ArtifactPart(Protocol):
    @property
    def name(self) -> str:
        """Unique among the parts of an artifact; canaries name their part by it."""

    @property
    def engine(self) -> str:
        """The engine whose version decides whether the files can be read: a name of `engine_versions.py`."""

    @property
    def holds(self) -> Literal["rows", "chunks", "vectors"]: ...

    def write(self, folder: Path, contents: Contents) -> Sequence[str]:
        """Write its files into the artifact's folder; returns their paths below it.

        Whoever reads `contents` a block at a time needs no memory for all of it.
        """

    def open(self, folder: Path) -> OpenPart: ...

    def canaries(self, opened: OpenPart, contents: Contents) -> Sequence[Canary]:
        """A few questions whose answers follow from the contents. They must not hang on a tie."""
