"""The control of `bench query`: DuckDB in a warm Python process, as its documentation shows it, on the same files.

A program and no module of frazil: it knows nothing of it. Its view reads the table's metadata file, so without what is
not committed. Asked line by line: queries to run once each, or again and again for some seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import duckdb


def connect(metadata: str, table: str, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": threads, "autoinstall_known_extensions": False})
    for name in ("avro", "iceberg"):
        module = __import__(f"duckdb_extension_{name}")
        (extension,) = Path(str(module.__file__)).parent.rglob(f"{name}.duckdb_extension")
        connection.load_extension(str(extension))
    # Files of an Iceberg table never change under their name, so that what was read from them stays true.
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute("SET validate_external_file_cache = 'NO_VALIDATION'")
    connection.execute(f"CREATE VIEW {table} AS SELECT * FROM iceberg_scan('{metadata}')")  # noqa: S608
    return connection


def run(connection: duckdb.DuckDBPyConnection, query: dict[str, Any]) -> tuple[float, list[Any]]:
    began = time.perf_counter()
    rows = connection.execute(query["sql"], query.get("parameters")).fetchall()
    return time.perf_counter() - began, rows


def answer(connection: duckdb.DuckDBPyConnection, order: dict[str, Any]) -> dict[str, Any]:
    seconds: list[float] = []
    rows: list[Any] = []
    processor, began = time.process_time(), time.perf_counter()
    until = began + order["seconds"] if "seconds" in order else None
    for query in itertools.cycle(order["queries"]) if until is not None else order["queries"]:
        if until is not None and time.perf_counter() >= until:
            break
        took, rows = run(connection, query)
        seconds.append(took)
    return {
        "asked": seconds,
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - processor,
        "first": rows[0] if rows else None,
    }


def main() -> None:
    connection = connect(os.environ["METADATA"], os.environ["TABLE"], int(os.environ["THREADS"]))
    for line in sys.stdin:
        print(json.dumps(answer(connection, json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()
