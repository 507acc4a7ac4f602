"""An index without a file of its own: exact search through all vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from frazil.serving.artifacts.canaries import nearest, vector_canaries
from frazil.serving.artifacts.contents import VECTORS, Contents, mapped
from frazil.serving.artifacts.manifest import Canary, Vectors
from frazil.serving.artifacts.parts.part import OpenPart


@dataclass(frozen=True)
class ExactPart:
    name: str = "exact"
    engine: str = "pyarrow"
    holds: Literal["rows", "chunks", "vectors"] = "vectors"

    def write(self, folder: Path, contents: Contents) -> Sequence[str]:
        return ()

    def open(self, folder: Path) -> OpenPart:
        return _OpenExact(mapped(folder / VECTORS))

    def canaries(self, opened: OpenPart, contents: Contents) -> Sequence[Canary]:
        return vector_canaries(self.name, contents.vectors)


class _OpenExact:
    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    @property
    def held(self) -> int:
        return len(self._vectors)

    def answer(self, canary: Canary) -> tuple[int, ...]:
        ordinals, _ = nearest(self._vectors, canary.as_vector(), len(canary.expected))
        return tuple(int(ordinal) for ordinal in ordinals)

    def close(self) -> None:
        self._vectors = np.empty((0, 1), dtype=np.float32)
