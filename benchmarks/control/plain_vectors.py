"""The controls of `bench search` and `build`: LanceDB, DuckDB VSS and faiss HNSW as their documentation shows them.

A program and no module of frazil: it knows nothing of it. The engine is its argument. Asked line by line: build an
index over the rows of an .npy file, open it, or search it; one query at a time, each with its seconds.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


class LanceDb:
    """An IVF_HNSW_SQ index with the parameters that it has by itself, and an index on the column of the filter."""

    package = "lancedb"

    def load(self, vectors: Any, slots: Any, place: Path) -> None:
        import lancedb
        import pyarrow as pa

        rows, dims = vectors.shape
        flat = pa.array(np.asarray(vectors).reshape(-1))
        columns = {
            "ordinal": np.arange(rows),
            "slot": slots,
            "vector": pa.FixedSizeListArray.from_arrays(flat, dims),
        }
        self._table = lancedb.connect(place).create_table("vectors", pa.table(columns))

    def index(self, place: Path) -> None:
        from lancedb.index import HnswSq

        self._table.create_index("vector", config=HnswSq(distance_type="dot"))

    def index_filter(self) -> None:
        from lancedb.index import BTree

        self._table.create_index("slot", config=BTree())

    def open(self, place: Path) -> None:
        import lancedb

        self._table = lancedb.connect(place).open_table("vectors")

    def prepared(self, query: Any) -> Any:
        return query

    def search(self, query: Any, k: int, below: int | None, options: dict[str, int]) -> Any:
        asked = self._table.search(query).distance_type("dot").limit(k).select(["ordinal"])
        if below is not None:
            asked = asked.where(f"slot < {below}", prefilter=True)
        for name, value in options.items():
            asked = getattr(asked, name)(value)
        return asked.to_arrow()["ordinal"].to_numpy()


class DuckDbVss:
    """A table in a DuckDB file and its HNSW index, with the parameters that it has by itself."""

    package = "duckdb"
    _width: int | None = None

    def load(self, vectors: Any, slots: Any, place: Path) -> None:
        import pyarrow as pa

        place.mkdir(parents=True)
        self.open(place)
        rows, self._dims = vectors.shape
        self._connection.execute(f"CREATE TABLE vectors (ordinal BIGINT, slot BIGINT, vector FLOAT[{self._dims}])")
        for start in range(0, rows, 16_384):
            block = np.asarray(vectors[start : start + 16_384])
            incoming = pa.table(
                {
                    "ordinal": np.arange(start, start + len(block)),
                    "slot": slots[start : start + len(block)],
                    "vector": pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), self._dims),
                }
            )
            self._connection.register("incoming", incoming)
            self._connection.execute("INSERT INTO vectors SELECT * FROM incoming")
            self._connection.unregister("incoming")

    def index(self, place: Path) -> None:
        self._connection.execute("CREATE INDEX nearest ON vectors USING HNSW (vector) WITH (metric = 'ip')")
        self._connection.execute("CHECKPOINT")

    def index_filter(self) -> None:
        """Nothing that its index would look at."""

    def open(self, place: Path) -> None:
        import duckdb
        import duckdb_extension_vss

        (extension,) = Path(str(duckdb_extension_vss.__file__)).parent.rglob("vss.duckdb_extension")
        self._connection = duckdb.connect(":memory:")
        self._connection.load_extension(str(extension))
        self._connection.execute("SET hnsw_enable_experimental_persistence = true")
        self._connection.execute(f"ATTACH '{place / 'vectors.duckdb'}' AS kept")
        self._connection.execute("USE kept")
        found = self._connection.execute(
            "SELECT data_type FROM duckdb_columns() WHERE table_name = 'vectors' AND column_name = 'vector'"
        ).fetchone()
        self._dims = int(found[0].removeprefix("FLOAT[").removesuffix("]")) if found else 0

    def prepared(self, query: Any) -> Any:
        # As one text in the statement, which takes 8 ms; as a list of numbers it takes 26, as a parameter 100.
        numbers = ",".join(f"{number:.9g}" for number in query)
        return f"'[{numbers}]'::FLOAT[{self._dims}]"

    def search(self, query: Any, k: int, below: int | None, options: dict[str, int]) -> Any:
        width = options.get("ef_search")
        if width != self._width:
            self._connection.execute("RESET hnsw_ef_search" if width is None else f"SET hnsw_ef_search = {width}")
            self._width = width
        among = "" if below is None else f"WHERE slot < {below} "
        found = self._connection.execute(
            f"SELECT ordinal FROM vectors {among}"  # noqa: S608
            f"ORDER BY array_negative_inner_product(vector, {query}) LIMIT {k}",
        ).fetchall()
        return np.array([ordinal for (ordinal,) in found], dtype=np.int64)


class FaissHnsw:
    """`HNSW32` over whole vectors, in one thread when it searches."""

    package = "faiss-cpu"

    def load(self, vectors: Any, slots: Any, place: Path) -> None:
        place.mkdir(parents=True)
        self._vectors = np.ascontiguousarray(vectors)
        self._slots = slots

    def index(self, place: Path) -> None:
        import faiss

        self._index = faiss.index_factory(self._vectors.shape[1], "HNSW32", faiss.METRIC_INNER_PRODUCT)
        self._index.add(self._vectors)
        faiss.write_index(self._index, str(place / "vectors.faiss"))

    def index_filter(self) -> None:
        """It is asked with a selector."""

    def open(self, place: Path) -> None:
        import faiss

        self._index = faiss.read_index(str(place / "vectors.faiss"))

    def prepared(self, query: Any) -> Any:
        return query.reshape(1, -1)

    def search(self, query: Any, k: int, below: int | None, options: dict[str, int]) -> Any:
        import faiss

        if below is not None:
            raise SystemExit("it knows no columns")
        faiss.omp_set_num_threads(1)
        how = faiss.SearchParametersHNSW(  # type: ignore[attr-defined]
            efSearch=options.get("ef_search", 16)
        )
        found = self._index.search(query, k, params=how)[1][0]
        return found[found >= 0]


ENGINES: dict[str, Any] = {"lancedb": LanceDb, "vss": DuckDbVss, "faiss_hnsw": FaissHnsw}


def build(engine: Any, order: dict[str, Any]) -> dict[str, Any]:
    """From the file of vectors to an index in an empty place; what the index took alone, and the bytes on the disk."""
    place = Path(order["place"])
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    vectors, slots = np.load(order["vectors"], mmap_mode="r"), np.load(order["slots"])
    began = time.perf_counter()
    engine.load(vectors, slots, place)
    loaded, processor = time.perf_counter(), time.process_time()
    engine.index(place)
    seconds, spent = time.perf_counter() - loaded, time.process_time() - processor
    engine.index_filter()
    return {
        "seconds": seconds,
        "processor_seconds": spent,
        "load_seconds": loaded - began,
        "bytes": sum(path.stat().st_size for path in place.rglob("*") if path.is_file()),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def search(engine: Any, order: dict[str, Any]) -> dict[str, Any]:
    """The ordinals that each query finds, and its seconds."""
    queries = np.load(order["queries"])
    asked, found = [], []
    for number in order["numbers"]:
        query = engine.prepared(queries[number])
        began = time.perf_counter()
        ordinals = engine.search(query, order["k"], order.get("below"), order.get("options") or {})
        asked.append(time.perf_counter() - began)
        found.append(ordinals.tolist())
    return {"asked": asked, "found": found}


def answer(engine: Any, order: dict[str, Any]) -> dict[str, Any]:
    if order["do"] == "build":
        return build(engine, order)
    if order["do"] == "open":
        engine.open(Path(order["place"]))
        return {}
    return search(engine, order)


def main() -> None:
    # Standard output is for the answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = ENGINES[sys.argv[1]]()
    print(json.dumps({"version": version(engine.package)}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
