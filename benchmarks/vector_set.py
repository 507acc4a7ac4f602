"""The vectors that `bench search`, `build` and `swap` work on: 768 numbers for each of many real sentences.

No wheel brings a model of 768 dimensions. So a sentence is embedded together with the one before and the one after it:
three vectors of wordllama, 256 numbers each, one behind the other and normalised. Two of them are near if they say the
like in a like context. Queries are sentences of the same documents that are not in the set. The nearest is found by
brute force, in plain numpy.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import say
from benchmarks.sentences import sentences
from frazil.embedding import open_model
from frazil.serving import Bitmap
from frazil.serving.vectors import nearest_by_brute_force

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
MODEL = "wordllama"
DIMS = 768
K = 10
QUERIES = 1_000
SHARES = (0.1, 0.01, 0.001)
"""Of the rows, that a filter leaves."""
WHAT = "wordllama of a sentence, the one before and the one after it, side by side; documentation of installed packages"
_SEED = 20_260_101
_FORMAT = 2
# Two sums of the same products in another order differ by this much; such neighbours are equally right.
_TIE = 1e-5


@dataclass(frozen=True)
class VectorSet:
    """Files in one folder: `vectors.npy`, `queries.npy`, `slots.npy` and `texts.json`."""

    folder: Path
    rows: int
    queries: int

    @cached_property
    def vectors(self) -> Floats:
        mapped: Floats = np.load(self.folder / "vectors.npy", mmap_mode="r")
        return mapped

    @cached_property
    def asked(self) -> Floats:
        found: Floats = np.load(self.folder / "queries.npy")
        return found

    @cached_property
    def slots(self) -> Ints:
        """All numbers below `rows` in no order: `slot < n` is a filter that leaves n rows, anywhere."""
        found: Ints = np.load(self.folder / "slots.npy")
        return found

    @cached_property
    def texts(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "texts.json").read_bytes())
        return found

    def below(self, share: float | None) -> int | None:
        return None if share is None else max(K, round(share * self.rows))

    def true_scores(self, share: float | None = None) -> Floats:
        """The scores of the true nearest of every query, best first; kept, since it takes longest of all."""
        path = self.folder / f"truth-{'all' if share is None else self.below(share)}.npy"
        if not path.exists():
            below = self.below(share)
            allowed = None if below is None else Bitmap.of_mask(self.slots < below)
            scores, _ = nearest_by_brute_force(self.vectors, self.asked, K, allowed=allowed)
            with path.open("wb") as file:
                np.save(file, scores)
        found: Floats = np.load(path)
        return found

    def recall(self, found: Sequence[Sequence[int]], numbers: Sequence[int], share: float | None = None) -> float:
        """How much of the truth these ordinals are, judged by their exact scores; what a filter forbids is wrong."""
        last = self.true_scores(share)[:, -1]
        below = self.below(share)
        shares = []
        for number, ordinals in zip(numbers, found, strict=True):
            chosen = np.array(sorted(set(ordinals)), dtype=np.int64)
            if below is not None:
                chosen = chosen[self.slots[chosen] < below]
            right = self.vectors[chosen] @ self.asked[number] >= last[number] - _TIE
            shares.append(min(int(right.sum()), K) / K)
        return float(np.mean(shares))


def vector_set(cache: Path, *, rows: int, queries: int = QUERIES) -> VectorSet:
    """The set below this folder: the one that is there already, or a new one."""
    kind = hashlib.sha256(f"{_FORMAT} {rows} {queries} {open_model(MODEL).version}".encode()).hexdigest()[:12]
    made = VectorSet(cache / f"vectors-{kind}", rows, queries)
    if (made.folder / "texts.json").exists():
        return made
    say(f"embedding {rows:,} sentences and {queries:,} queries")
    made.folder.mkdir(parents=True, exist_ok=True)
    told = sentences(rows + queries + 2)
    vectors = _in_context(told)
    chosen = np.random.default_rng(_SEED).permutation(len(vectors))
    base = np.sort(chosen[queries : queries + rows])
    np.save(made.folder / "queries.npy", vectors[chosen[:queries]])
    np.save(made.folder / "vectors.npy", vectors[base])
    np.save(made.folder / "slots.npy", np.random.default_rng(_SEED + 1).permutation(rows))
    unfinished = made.folder / ".texts.json"
    unfinished.write_text(json.dumps([told[at + 1] for at in base]))
    os.replace(unfinished, made.folder / "texts.json")
    return made


def _in_context(texts: Sequence[str]) -> Floats:
    """A vector of each sentence but the first and the last."""
    single = open_model(MODEL).embed(texts)
    joined = np.concatenate([single[:-2], single[1:-1], single[2:]], axis=1)
    lengths = np.linalg.norm(joined, axis=1, keepdims=True)
    unit: Floats = (joined / lengths).astype(np.float32)
    return unit
