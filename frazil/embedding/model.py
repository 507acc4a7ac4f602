"""Model protocol: texts in, unit vectors out, and a version that changes with the vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""One row for each text, of length 1; a row of zeros is no vector."""


class Model(Protocol):
    """One embedding model, loaded. Threads may share it.

    A process that was forked opens its own; and one that has opened a model forks no more, as the threads that
    tokenizers and runtimes keep do not come along.
    """

    @property
    def name(self) -> str:
        """What tables and settings call it."""

    @property
    def version(self) -> str:
        """Another one as soon as the same text would get another vector: other weights, tokens or configuration."""

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A float32 array of (texts, dims), in their order; a text's vector does not depend on its company.

        A text without a word that the model knows gets a row of zeros, never NaN. A provider that does not answer
        raises `Unavailable`, one that is set up wrongly `Misconfigured`.
        """


@dataclass(frozen=True)
class RawVectors:
    """What a provider gave for each text, as it came: nothing in it is checked or scaled yet."""

    vectors: npt.NDArray[np.floating]
    """(texts, dims); the rows named in `failed` mean nothing."""
    failed: Mapping[int, NoVector] = field(default_factory=dict)


@dataclass(frozen=True)
class NoVector:
    """The reason why one text has no vector: a code for programs and a sentence for people."""

    code: str
    reason: str


@runtime_checkable
class ExplainingModel(Model, Protocol):
    """A model that gives the reason for each text without a vector."""

    def answer(self, texts: Sequence[str]) -> RawVectors: ...


def unit(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Each row scaled to length 1; rows of zeros, and rows with NaN or infinity in them, stay what they are."""
    if vectors.shape[0] == 0:
        return vectors.astype(np.float32)
    exact = vectors.astype(np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    scalable = np.isfinite(largest) & (largest > 0)
    # By the largest number first: the squares of what a provider sends may not fit even into a double.
    exact /= np.where(scalable, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", exact, exact))[:, None]
    return (exact / np.where(scalable, lengths, 1.0)).astype(np.float32)


def clean(text: str) -> str:
    """The text without halves of surrogate pairs, which are no characters and cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def files_version(recipe: str, *files: Path) -> str:
    """The version of a model that is made of files: their content, and how we read them."""
    digest = sha256(recipe.encode())
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]
