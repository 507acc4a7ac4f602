"""The default index follows the size of the data, and finds what there is at each size: measured on real text."""

from __future__ import annotations

import ast
import re
import sysconfig
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from frazil.embedding import embedded, open_model
from frazil.serving.vectors import build, default_config
from frazil.serving.vectors.brute_force import nearest_by_brute_force, recall
from frazil.serving.vectors.exact_search import Floats
from frazil.serving.vectors.index_files import open_index

QUERIES = 100
LARGEST = 14_000


@cache
def corpus() -> Floats:
    """Vectors by wordllama of sentences that stand in the documentation of the installed packages, each once."""
    found: dict[str, None] = {}
    places = sysconfig.get_paths()
    folders = [Path(places["stdlib"]), *(Path(places["purelib"]) / name for name in ("pandas", "numpy", "pyarrow"))]
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        if "site-packages" in path.parts and "tests" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(errors="ignore"))
        except SyntaxError:  # the standard library tests its own parser
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        for text in (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)):
            pieces = (" ".join(piece.split()) for piece in re.split(r"(?<=[.!?])\s+|\n\s*\n", text))
            found.update(dict.fromkeys(piece for piece in pieces if 40 <= len(piece) <= 400))
        if len(found) >= LARGEST + QUERIES + 1:
            break
    assert len(found) > LARGEST + QUERIES, f"there are {len(found)} sentences"
    texts = list(found)[: LARGEST + QUERIES + 1]
    np.random.default_rng(5).shuffle(texts)
    return embedded(open_model("wordllama"), texts).vectors


def paired() -> Floats:
    """512 numbers: a sentence and the one after it."""
    one = corpus()
    rows = np.concatenate([one[:-1], one[1:]], axis=1)
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("rows", "dims", "kind"),
    [(500, 256, "flat"), (7_000, 256, "flat"), (8_000, 256, "pq"), (LARGEST - 10, 256, "pq"), (6_000, 512, "pq")],
)
def test_the_default_finds_099_of_the_true_ten(rows: int, dims: int, kind: str, tmp_path: Path) -> None:
    every = corpus() if dims == 256 else paired()
    queries, vectors = every[:QUERIES], np.ascontiguousarray(every[QUERIES : QUERIES + rows])
    assert vectors.shape == (rows, dims)
    config = default_config(rows, dims)
    assert config.kind == kind
    build(config, vectors, tmp_path, threads=2)
    found, _ = open_index(tmp_path).search(queries, 10)
    assert recall(found, nearest_by_brute_force(vectors, queries, 10)[0]) >= 0.99
