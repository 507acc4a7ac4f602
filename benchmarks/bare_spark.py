"""A control: a Spark session that appends rows to an Iceberg table, and nothing around it.

Says when it is warm, with the seconds that took; then, asked for a number of appends, the seconds of each. The table is
in a catalog of the same kind as the product's; every append is one row.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks import load
from benchmarks.processes import settings_in
from benchmarks.workbench import Workbench, spark_workbench


def append(bench: Workbench, table: str) -> float:
    row = load.as_rows(load.spec("bare"), load.messages(load.spec("bare"), os.urandom(8).hex(), 1, per_message=1))
    started = time.perf_counter()
    bench.session.createDataFrame(row).writeTo(table).append()
    return time.perf_counter() - started


def main() -> None:
    began = time.perf_counter()
    # Standard output is for the answers alone; Spark's children get standard error in its place.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with spark_workbench(settings_in(Path.cwd() / "bare-spark")) as bench:
        table = bench.lake.create(load.spec("bare"), stream="", identity="")
        bench.lake.set_properties(table.name, {"write.wap.enabled": "false"})
        name = f"{bench.lake.catalog.name}.{table.name}"
        append(bench, name)
        print(json.dumps({"seconds": time.perf_counter() - began, "pid": os.getpid()}), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            seconds = [append(bench, name) for _ in range(asked["appends"])]
            print(json.dumps({"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
