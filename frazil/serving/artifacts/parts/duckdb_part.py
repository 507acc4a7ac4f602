"""`rows.duckdb`: the rows and chunks as tables of a DuckDB file, and on demand DuckDB's own HNSW index.

The engine is loaded where an artifact is built and in walled workers, not where this package is imported.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from frazil.errors import Misconfigured
from frazil.events.declaration import quote_name
from frazil.serving.artifacts.canaries import vector_canaries
from frazil.serving.artifacts.contents import Contents
from frazil.serving.artifacts.manifest import Canary
from frazil.serving.artifacts.parts.part import OpenPart

if TYPE_CHECKING:
    import duckdb

DUCKDB = "rows.duckdb"
_VECTOR_ROWS = 2_048
_VECTOR = re.compile(r"(FLOAT|DOUBLE)\[\]")


@dataclass(frozen=True)
class DuckPart:
    """Tables `rows` (with the row number as `_document`) and `chunks` (with `ordinal`); with `vss`, `vectors` too.

    The index of VSS is built in memory as a whole (100,000 × 768: minutes), so it is for those who ask for it.
    """

    dims: int = 0
    vss: bool = False
    threads: int = 2
    memory: str = "1GB"
    name: str = "duckdb"
    engine: str = "duckdb"
    holds: Literal["rows", "chunks", "vectors"] = "rows"

    def write(self, folder: Path, contents: Contents) -> Sequence[str]:
        connection = self._connect(folder / DUCKDB)
        try:
            _fill(connection, "rows", _numbered("_document", contents.rows))
            _fill(connection, "chunks", _numbered("ordinal", contents.chunks))
            if self.vss:
                _fill(connection, "vectors", _vector_rows(contents), f"ordinal, vector::FLOAT[{self.dims}] AS vector")
                connection.execute("SET hnsw_enable_experimental_persistence = true")
                connection.execute("CREATE INDEX nearest ON vectors USING HNSW (vector) WITH (metric = 'ip')")
            connection.execute("CHECKPOINT")
        finally:
            connection.close()
        return [DUCKDB]

    def open(self, folder: Path) -> OpenPart:
        return _OpenDuck(self._connect(folder / DUCKDB, read_only=True), self.dims)

    def canaries(self, opened: OpenPart, contents: Contents) -> Sequence[Canary]:
        return vector_canaries(self.name, contents.vectors, depth=1) if self.vss else ()

    def _connect(self, path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(
            ":memory:",
            config={
                "threads": self.threads,
                "memory_limit": self.memory,
                "temp_directory": "",
                # Every row has its number in it. Without an order to keep, filling takes a quarter less.
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        if self.vss:
            # Before the file is opened: its index cannot be read without.
            connection.load_extension(str(vss_extension()))
        name = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{name}' AS artifact{' (READ_ONLY)' if read_only else ''}")
        connection.execute("USE artifact")
        return connection


class _OpenDuck:
    def __init__(self, connection: duckdb.DuckDBPyConnection, dims: int) -> None:
        self._connection = connection
        self._dims = dims

    @property
    def held(self) -> int:
        counted = self._connection.execute("SELECT count(*) FROM rows").fetchone()
        assert counted is not None
        return int(counted[0])

    def answer(self, canary: Canary) -> tuple[int, ...]:
        found = self._connection.execute(
            f"SELECT ordinal FROM vectors ORDER BY array_negative_inner_product(vector, $query::FLOAT[{self._dims}])"  # noqa: S608
            f" LIMIT {len(canary.expected)}",
            {"query": canary.as_vector().tolist()},
        ).fetchall()
        return tuple(int(ordinal) for (ordinal,) in found)

    def close(self) -> None:
        self._connection.close()


def _fill(connection: duckdb.DuckDBPyConnection, table: str, reader: pa.RecordBatchReader, columns: str = "*") -> None:
    connection.register("incoming", reader.schema.empty_table())
    described = connection.execute(f"DESCRIBE SELECT {columns} FROM incoming").fetchall()  # noqa: S608
    connection.execute(f"CREATE TABLE {table} ({', '.join(_column(name, kind) for name, kind, *_ in described)})")
    connection.register("incoming", reader)
    connection.execute(f"INSERT INTO {table} SELECT {columns} FROM incoming")  # noqa: S608
    connection.unregister("incoming")


def _column(name: str, kind: str) -> str:
    """Vectors as they are: packed they take half as long again, and half as much room again [100,000 × 768]."""
    return f"{quote_name(name)} {kind}{' USING COMPRESSION uncompressed' if _VECTOR.fullmatch(kind) else ''}"


def _numbered(name: str, table: pa.Table) -> pa.RecordBatchReader:
    """The rows with their place, batch by batch as they are mapped."""
    schema = pa.schema([pa.field(name, pa.int64()), *table.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in table.to_batches():
            numbers = pa.array(np.arange(at, at + batch.num_rows), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)
            at += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema, batches())


def _vector_rows(contents: Contents) -> pa.RecordBatchReader:
    dims = contents.vectors.shape[1]
    schema = pa.schema([("ordinal", pa.int64()), ("vector", pa.list_(pa.float32(), dims))])

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(contents.vectors), _VECTOR_ROWS):
            block = contents.vectors[at : at + _VECTOR_ROWS]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), dims)
            ordinals = pa.array(np.arange(at, at + len(block)), pa.int64())
            yield pa.RecordBatch.from_arrays([ordinals, vectors], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def vss_extension() -> Path:
    """The file of DuckDB's own vector index, inside its wheel; `Misconfigured` where that is not installed."""
    try:
        module = importlib.import_module("duckdb_extension_vss")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "the HNSW index of DuckDB needs its extension vss, which is not installed",
            hint="install duckdb-extension-vss in the version of duckdb, or choose another index",
        ) from error
    (found,) = Path(str(module.__file__)).parent.rglob("vss.duckdb_extension")
    return found
