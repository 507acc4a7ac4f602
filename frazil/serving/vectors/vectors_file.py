"""Vectors file of an artifact: one file in NumPy's format, float32, normalised, row i for ordinal i; mapped, not read.

All that is exact reads it: flat search, filtered search, the scores of candidates. No index holds them a second time.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from frazil.errors import DataLoss, InvalidInput
from frazil.serving.vectors.exact_search import Floats

_AT_ONCE = 16_384
# Sums of squares of float32 stray this far from one.
_NORM_SLACK = 1e-3


def check_vectors(vectors: Floats) -> None:
    """Refuse what is not a matrix of normalised float32 numbers."""
    if vectors.ndim != 2 or vectors.dtype != np.float32 or vectors.shape[1] == 0:
        raise InvalidInput(
            f"vectors must be a matrix of float32, not {vectors.dtype} of shape {vectors.shape}",
            code="bad_vectors",
            hint="pass one row per chunk",
        )
    for start in range(0, len(vectors), _AT_ONCE):
        rows = vectors[start : start + _AT_ONCE]
        squares = np.einsum("ij,ij->i", rows, rows)
        wrong = np.flatnonzero(~(np.abs(squares - 1) <= _NORM_SLACK))
        if len(wrong):
            raise InvalidInput(
                f"vector {start + int(wrong[0])} is not of length 1 (its square is {squares[wrong[0]]})",
                code="bad_vectors",
                hint="normalise the vectors; zeros, NaN and infinite numbers belong in quarantine",
            )


def check_queries(queries: Floats, dims: int) -> Floats:
    """Queries as a contiguous (n, dims) matrix of finite numbers; one query may come as a plain row."""
    rows = np.ascontiguousarray(np.atleast_2d(queries), dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dims:
        raise InvalidInput(
            f"the query vector has {rows.shape[-1]} dimensions, the index has {dims}",
            code="wrong_dimension",
            hint="embed the query with the model that the index was built with",
        )
    flat = rows.reshape(-1)
    # Their product is finite if they are, and takes a fifth of the time; that of very large ones shows nothing.
    if not math.isfinite(float(flat @ flat)) and not np.isfinite(rows).all():
        raise InvalidInput(
            "the query vector has a number that is not finite", code="bad_vector", hint="check the model"
        )
    return rows


def write_vectors(vectors: Floats, path: Path) -> None:
    """Write them, unless they are the mapped content of this very file."""
    if isinstance(vectors, np.memmap) and vectors.filename and Path(vectors.filename).resolve() == path.resolve():
        return
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": vectors.shape})
        for start in range(0, len(vectors), _AT_ONCE):
            file.write(np.ascontiguousarray(vectors[start : start + _AT_ONCE], dtype="<f4").data)


def open_vectors(path: Path, rows: int, dims: int) -> Floats:
    """Map the file; raises `DataLoss` when it is not what was written."""
    try:
        # What has nothing after its header cannot be mapped.
        vectors: Floats = np.load(path, mmap_mode="r" if rows else None, allow_pickle=False)
    except FileNotFoundError as missing:
        raise damaged(path, "it is missing") from missing
    except Exception as wrong:  # the header is read as Python text, and breaks in as many ways
        raise damaged(path, str(wrong)) from wrong
    if vectors.shape != (rows, dims) or vectors.dtype != np.dtype("<f4") or not vectors.flags.c_contiguous:
        raise damaged(path, f"it holds {vectors.dtype} of shape {vectors.shape}, not {rows} × {dims} float32")
    return vectors


def damaged(path: Path, why: str) -> DataLoss:
    return DataLoss(
        f"the index file {path.name} is damaged: {why}",
        code="index_damaged",
        hint="build the artifact again; an older generation can go on serving meanwhile",
        details={"file": str(path)},
    )
