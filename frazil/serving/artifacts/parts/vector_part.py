"""Vector index of an artifact: codes beside the vectors that every artifact has, which are not written twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frazil.serving.artifacts.canaries import vector_canaries
from frazil.serving.artifacts.contents import VECTORS, Contents
from frazil.serving.artifacts.manifest import Canary
from frazil.serving.artifacts.parts.part import OpenPart
from frazil.serving.vectors.config import IndexConfig, default_config
from frazil.serving.vectors.index_files import build, open_index
from frazil.serving.vectors.vector_index import VectorIndex


@dataclass(frozen=True)
class IndexPart:
    """`config` None is the kind that fits the number of vectors. An artifact without a model has no such part."""

    config: IndexConfig | None = None
    threads: int | None = None
    name: str = "index"
    engine: str = "faiss"
    holds: Literal["rows", "chunks", "vectors"] = "vectors"

    def write(self, folder: Path, contents: Contents) -> Sequence[str]:
        config = self.config or default_config(*contents.vectors.shape)
        report = build(config, contents.vectors, folder, threads=self.threads)
        return [path for path in report.files if path != VECTORS]

    def open(self, folder: Path) -> OpenIndex:
        return OpenIndex(open_index(folder))

    def canaries(self, opened: OpenPart, contents: Contents) -> Sequence[Canary]:
        """An index that may miss a neighbour is asked what it finds; one that finds none of them is not whole."""
        exact = vector_canaries(self.name, contents.vectors)
        return [canary for canary in exact if opened.answer(canary) == canary.expected] or exact


class OpenIndex:
    def __init__(self, index: VectorIndex) -> None:
        self.index = index

    @property
    def held(self) -> int:
        return self.index.rows

    def answer(self, canary: Canary) -> tuple[int, ...]:
        _, ordinals = self.index.search(canary.as_vector(), len(canary.expected))
        return tuple(ordinals[0].tolist())

    def close(self) -> None:
        """The files stay mapped until nobody has the index any more."""
        del self.index
