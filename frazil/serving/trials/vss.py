"""VSS, DuckDB's own HNSW index, to compare with: built into a database file, searched by SQL."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.errors import Misconfigured
from frazil.serving.artifacts.parts.duckdb_part import vss_extension
from frazil.serving.bitmap import Ordinals
from frazil.serving.trials.grid import TrialConfig
from frazil.serving.vectors.exact_search import Floats

if TYPE_CHECKING:
    import duckdb

_FILE = "vss.duckdb"
_ROWS = 2048


def vss_missing() -> str | None:
    """Why this kind cannot be tried here; None if it can."""
    try:
        vss_extension()
    except Misconfigured as error:
        return error.message
    return None


def load_engine() -> None:
    """Before memory is measured: the other engine is loaded by then too."""
    importlib.import_module("duckdb")


def build_vss(config: TrialConfig, vectors: Path, folder: Path, *, threads: int) -> tuple[float, int]:
    """Seconds and bytes of the file, in which are the vectors too."""
    rows: Floats = np.load(vectors, mmap_mode="r")
    began = time.perf_counter()
    connection = _connected(folder, threads=threads)
    try:
        connection.register("incoming", _reader(rows))
        # All three are whole numbers.
        dims, links, width = rows.shape[1], config.params["links"], config.params["build_width"]
        connection.execute(
            f"CREATE TABLE vectors AS SELECT ordinal, vector::FLOAT[{dims}] AS vector FROM incoming"  # noqa: S608
        )
        connection.execute("SET hnsw_enable_experimental_persistence = true")
        connection.execute(
            "CREATE INDEX nearest ON vectors USING HNSW (vector)"
            f" WITH (metric = 'ip', M = {links}, ef_construction = {width})"
        )
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
    return time.perf_counter() - began, (folder / _FILE).stat().st_size


def open_vss(config: TrialConfig, folder: Path) -> _Vss:
    connection = _connected(folder, threads=1, read_only=True)
    connection.execute(f"SET hnsw_ef_search = {config.params['search_width']}")
    return _Vss(connection)


class _Vss:
    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        kind = connection.execute("SELECT typeof(vector) FROM vectors LIMIT 1").fetchone()
        assert kind is not None
        self._type = str(kind[0])

    def search(self, query: Floats, k: int) -> Ordinals:
        found = self._connection.execute(
            f"SELECT ordinal FROM vectors ORDER BY array_negative_inner_product(vector, $query::{self._type})"  # noqa: S608
            f" LIMIT {k}",
            {"query": query.tolist()},
        ).fetchnumpy()
        return np.asarray(found["ordinal"], dtype=np.int64)


def _connected(folder: Path, *, threads: int, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": threads,
            "temp_directory": "",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    # Before the file is opened: its index cannot be read without.
    connection.load_extension(str(vss_extension()))
    name = str(folder / _FILE).replace("'", "''")
    connection.execute(f"ATTACH '{name}' AS trial{' (READ_ONLY)' if read_only else ''}")
    connection.execute("USE trial")
    return connection


def _reader(rows: Floats) -> pa.RecordBatchReader:
    dims = rows.shape[1]
    schema = pa.schema([("ordinal", pa.int64()), ("vector", pa.list_(pa.float32(), dims))])

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), _ROWS):
            block = np.ascontiguousarray(rows[at : at + _ROWS])
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), dims)
            yield pa.RecordBatch.from_arrays([pa.array(np.arange(at, at + len(block))), vectors], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
