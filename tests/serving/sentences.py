"""Real language to search in: sentences from the documentation of the standard library, and vectors of them.

The vectors are those of latent semantic analysis: the directions in which the sentences' words differ most. Texts about
the same things are near each other, as with an embedding model; it needs none, and is the same in every run.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

SENTENCES = 6000
MAX_DIMS = 128
_WORD = re.compile(r"[a-z]{2,}")


@cache
def sentences() -> tuple[str, ...]:
    """Different sentences of 40 to 400 characters, in the order of the files."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        tree = ast.parse(path.read_text(errors="ignore"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
        for text in texts:
            pieces = (" ".join(piece.split()) for piece in re.split(r"(?<=[.!?])\s+|\n\s*\n", text))
            found.update(dict.fromkeys(piece for piece in pieces if 40 <= len(piece) <= 400))
        if len(found) >= SENTENCES:
            break
    assert len(found) >= SENTENCES
    return tuple(found)[:SENTENCES]


@cache
def vectors(dims: int) -> npt.NDArray[np.float32]:
    """One for each sentence, normalised, read-only."""
    rows = np.ascontiguousarray(_directions()[:, :dims])
    rows[np.linalg.norm(rows, axis=1) < 1e-6] = 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows.flags.writeable = False
    return rows


@cache
def _directions() -> npt.NDArray[np.float32]:
    """The first singular directions of the matrix of sentences and words, by random projection."""
    words = [_WORD.findall(sentence.lower()) for sentence in sentences()]
    seen = Counter(word for some in words for word in set(some))
    numbers = {word: at for at, word in enumerate(sorted(word for word in seen if seen[word] > 1))}
    counts = np.zeros((len(words), len(numbers)), dtype=np.float32)
    for at, some in enumerate(words):
        for word in some:
            if word in numbers:
                counts[at, numbers[word]] += np.log(len(words) / seen[word])
    sketch = np.random.default_rng(11).normal(size=(len(numbers), MAX_DIMS + 8)).astype(np.float32)
    for _ in range(2):
        basis = np.linalg.qr(counts @ sketch)[0]
        sketch = counts.T @ basis
    turned, strength, _ = np.linalg.svd(sketch.T, full_matrices=False)
    directions: npt.NDArray[np.float32] = (basis @ turned * strength).astype(np.float32)
    return directions
