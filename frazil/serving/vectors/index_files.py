"""Files of a vector index: `vectors.npy`, `codes.faiss` for what is not flat, and `index.json`, which describes them.

Nothing here is written twice: a folder is built, then only read. `index.json` comes last, so that a folder without it
is one whose build did not end.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.serving.vectors.candidate_finders import CodeFinder, Finder, GraphFinder, train_and_fill
from frazil.serving.vectors.config import SEARCHED_WITH, IndexConfig
from frazil.serving.vectors.exact_search import Floats
from frazil.serving.vectors.faiss_library import VERSION, faiss
from frazil.serving.vectors.vector_index import VectorIndex
from frazil.serving.vectors.vectors_file import check_vectors, damaged, open_vectors, write_vectors

VECTORS = "vectors.npy"
CODES = "codes.faiss"
DESCRIPTION = "index.json"
FORMAT = 1
# Fewer do not train a codebook, and comparing with all of them takes microseconds.
LEAST_TRAINED_ROWS = 1000


@dataclass(frozen=True)
class BuildReport:
    """What was built; `config` is `flat` where there were too few vectors for the requested kind."""

    config: IndexConfig
    rows: int
    dims: int
    seconds: float
    bytes: int
    """Of the index alone."""
    vector_bytes: int
    files: tuple[str, ...]


def build(config: IndexConfig, vectors: Floats, folder: Path, *, threads: int | None = None) -> BuildReport:
    """Write the index of these vectors (normalised float32, row i for ordinal i) into an existing folder.

    Every vector is in it, or nothing is: raises `InvalidInput` for vectors that are not normalised. Vectors that are
    mapped from the folder's own `vectors.npy` are not written again. The caller makes the files durable.
    """
    begun = time.perf_counter()
    check_vectors(vectors)
    rows, dims = vectors.shape
    if rows < LEAST_TRAINED_ROWS:
        config = IndexConfig("flat")
    write_vectors(vectors, folder / VECTORS)
    files = [VECTORS]
    description: dict[str, Any] = {
        "format": FORMAT,
        "engine": VERSION,
        "rows": rows,
        "dims": dims,
        "config": config.as_json(),
    }
    if config.kind != "flat":
        index = train_and_fill(config, vectors, threads=threads or os.cpu_count() or 1)
        if index.ntotal != rows:
            raise damaged(folder / CODES, f"{rows} vectors went in, {index.ntotal} are indexed")
        faiss.write_index(index, str(folder / CODES))
        description["codes_sha256"] = _sha256(folder / CODES)
        files.append(CODES)
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
    return BuildReport(
        config=config,
        rows=rows,
        dims=dims,
        seconds=time.perf_counter() - begun,
        bytes=(folder / CODES).stat().st_size if CODES in files else 0,
        vector_bytes=(folder / VECTORS).stat().st_size,
        files=(*files, DESCRIPTION),
    )


def open_index(folder: Path) -> VectorIndex:
    """Open what `build` wrote; raises `DataLoss` with code `index_damaged` when it is not that any more.

    The codes are checked against their hash before faiss sees them, because it trusts its files: a flipped bit in a
    length makes it allocate, or read, what is not there. A flipped bit in the vectors only makes a score wrong, and
    is for the hashes of the artifact to find: they are too large to read at each start.
    """
    description = _description(folder / DESCRIPTION)
    config = IndexConfig.parse(description["config"])
    vectors = open_vectors(folder / VECTORS, description["rows"], description["dims"])
    return VectorIndex(config, vectors, _finder(config, folder / CODES, description))


def searched_with(folder: Path, config: IndexConfig, other: Path) -> None:
    """Make in `other` the index of the same vectors and codes that is searched with these parameters, by links."""
    description = _description(folder / DESCRIPTION)
    built = IndexConfig.parse(description["config"])
    if built.kind == "flat":
        config = built
    if _built_with(config) != _built_with(built):
        raise ValueError(f"{config.as_json()} needs other codes than {built.as_json()}")
    for name in (VECTORS, CODES):
        if (folder / name).exists():
            os.link(folder / name, other / name)
    (other / DESCRIPTION).write_text(json.dumps({**description, "config": config.as_json()}, indent=1) + "\n")


def _built_with(config: IndexConfig) -> dict[str, Any]:
    return {name: value for name, value in config.as_json().items() if name not in SEARCHED_WITH}


def _finder(config: IndexConfig, path: Path, description: dict[str, Any]) -> Finder | None:
    if config.kind == "flat":
        return None
    try:
        if _sha256(path) != description["codes_sha256"]:
            raise damaged(path, "its content is not what was written")
        index = faiss.read_index(str(path))
    except FileNotFoundError as missing:
        raise damaged(path, "it is missing") from missing
    except RuntimeError as wrong:
        raise damaged(path, str(wrong)) from wrong
    if index.ntotal != description["rows"]:
        raise damaged(path, f"it holds {index.ntotal} vectors, not {description['rows']}")
    return GraphFinder(index, config) if config.kind == "hnsw" else CodeFinder(index, config)


def _description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_bytes())
        whole = (
            description["format"] == FORMAT
            and isinstance(description["rows"], int)
            and isinstance(description["dims"], int)
        )
        if not whole or (description["config"]["kind"] != "flat" and not isinstance(description["codes_sha256"], str)):
            raise damaged(path, "it is of another format")
    except FileNotFoundError as missing:
        raise damaged(path, "it is missing") from missing
    except (ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise damaged(path, "it is not what was written") from wrong
    described: dict[str, Any] = description
    return described


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
