"""A control: dlt loads a CSV file or a Postgres table into an Iceberg table of its filesystem destination.

Knows nothing of frazil; runs in a virtual environment of its own. Asked line by line, each time with what to load, how,
and a folder for it; answers with the seconds of the whole run and the rows that the table has then. The process stays,
so that all but the first load find everything imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"

import dlt
import pyarrow as pa
from pyarrow import csv

CHUNK_ROWS = 500_000


def csv_by_pyarrow(order: dict[str, Any]) -> Any:
    """A resource by hand: pyarrow reads and infers, dlt is given Arrow. Records of another width are left out."""

    def orders() -> Any:
        yield csv.read_csv(order["path"], parse_options=csv.ParseOptions(invalid_row_handler=lambda row: "skip"))

    return dlt.resource(orders, name="loaded")


def csv_by_duckdb(order: dict[str, Any]) -> Any:
    """The fastest CSV reader that dlt has itself."""
    from dlt.sources.filesystem import filesystem, read_csv_duckdb

    path = Path(order["path"])
    files = filesystem(bucket_url=path.parent.as_uri(), file_glob=path.name)
    return (files | read_csv_duckdb(use_pyarrow=True, chunk_size=CHUNK_ROWS, ignore_errors=True)).with_name("loaded")


def csv_by_pandas(order: dict[str, Any]) -> Any:
    """The reader that its documentation begins with: pandas reads chunks, dlt is given a dictionary a record."""
    from dlt.sources.filesystem import filesystem, read_csv

    path = Path(order["path"])
    files = filesystem(bucket_url=path.parent.as_uri(), file_glob=path.name)
    return (files | read_csv()).with_name("loaded")


def postgres(order: dict[str, Any]) -> Any:
    from dlt.sources.sql_database import sql_table

    resource = sql_table(
        credentials=os.environ["SOURCE_DSN"].replace("postgresql://", "postgresql+psycopg2://", 1),
        table=order["table"],
        backend=order["backend"],
        chunk_size=CHUNK_ROWS,
        reflection_level="full_with_precision",
        **({"backend_kwargs": {"return_type": "arrow_stream"}} if order["backend"] == "connectorx" else {}),
    )
    return resource.with_name("loaded")


SOURCES = {
    "csv by pyarrow": csv_by_pyarrow,
    "csv by duckdb": csv_by_duckdb,
    "csv by pandas": csv_by_pandas,
    "postgres": postgres,
}


def load(order: dict[str, Any]) -> dict[str, Any]:
    folder = Path(order["folder"])
    pipeline = dlt.pipeline(
        f"control_{time.monotonic_ns()}",
        pipelines_dir=str(folder / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=(folder / "lake").as_uri()),
        dataset_name="control",
    )
    began = time.perf_counter()
    pipeline.run(SOURCES[order["load"]](order), table_format="iceberg", loader_file_format="parquet")
    seconds = time.perf_counter() - began
    from dlt.common.libs.pyiceberg import get_iceberg_tables

    rows = get_iceberg_tables(pipeline, "loaded")["loaded"].scan().count()
    return {"seconds": seconds, "rows": rows}


def main() -> None:
    # Standard output is for the answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pandas = find_spec("pandas") is not None
    print(json.dumps({"dlt": dlt.__version__, "pyarrow": pa.__version__, "pandas": pandas}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(load(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
