"""Exact search through all vectors: an index without a file of its own, and the truth that others are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from frazil.serving.artifacts.contents import VECTORS, Contents, mapped
from frazil.serving.artifacts.manifest import Canary, Vectors
from frazil.serving.artifacts.parts.part import OpenPart

_BLOCK = 65_536
_CANARIES = 4
_CANDIDATES = 16
_DEPTH = 3
# Two scores this near to each other may change places between two machines.
_CLEAR = 1e-4


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


def nearest(vectors: Vectors, query: Vectors, k: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Vectors]:
    """The ordinals of the k best by inner product and their scores, best first, the lower ordinal first at a tie."""
    scores = np.concatenate([vectors[at : at + _BLOCK] @ query for at in range(0, len(vectors), _BLOCK)] or [query[:0]])
    order = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return order, scores[order]


def vector_canaries(part: str, vectors: Vectors, depth: int = _DEPTH) -> list[Canary]:
    """Stored vectors as questions, spread over all of them: the exact answers, as far down as no two are near a tie."""
    found: list[Canary] = []
    for ordinal in np.unique(np.linspace(0, len(vectors) - 1, _CANDIDATES).astype(int)) if len(vectors) else ():
        order, scores = nearest(vectors, vectors[ordinal], depth + 1)
        clear = 0
        while clear < min(depth, len(order)) and (
            clear + 1 == len(order) or scores[clear] - scores[clear + 1] > _CLEAR
        ):
            clear += 1
        if clear:
            found.append(Canary.of_vector(part, vectors[ordinal], tuple(int(number) for number in order[:clear])))
        if len(found) == _CANARIES:
            break
    return found
