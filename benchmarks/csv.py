"""`bench csv`: a CSV file becomes rows of an Iceberg table, against plain Spark and against dlt on the same file.

Ours is the load of the product: scan with its hash, types inferred from all the data, checks, quarantine, files synced
to the disk, publish, journal. Spark is told the schema and appends in the same warm session, to a table with the same
codec; it checks and syncs nothing. dlt is a warm process that infers types from what it reads.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import csv_load
from benchmarks.csv_load import CsvMade
from benchmarks.dlt_control import DltControl, start_dlt
from benchmarks.processes import scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, say
from benchmarks.workbench import Workbench, bulk_tools, spark_workbench
from frazil.errors import FrazilError
from frazil.pipeline.sources.csv import CsvLoads
from frazil.registry import Job
from frazil.requests import LoadRequest

GOAL_OF_SPARK = 0.6
GOAL_OF_DLT = 3.0
DLT_READERS = ("csv by duckdb", "csv by pyarrow")
"""dlt's own fastest reader, and Arrow tables that are handed to it."""
DLT_DOCUMENTED = "csv by pandas"
"""The reader that dlt's documentation begins with. It makes a dictionary of every record and takes minutes: it has one
turn, the last one. Of all three the fastest counts."""


def run(*, rows: int = 2_000_000, rounds: int = 3, dlt: bool = True, cache: Path | None = None) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, ExitStack() as running:
        made = csv_load.write_orders(folder / "orders.csv", rows)
        say(f"{made.records:,} records are written, {made.size / 1e6:,.0f} MB")
        control = start_dlt(running, folder, cache=cache, wanted=dlt)
        bench = running.enter_context(spark_workbench(settings_in(folder)))
        taken = _take_turns(bench, control, made, folder, rounds)
    return report(made.records, taken, control, machine)


def _take_turns(
    bench: Workbench, control: DltControl, made: CsvMade, folder: Path, rounds: int
) -> dict[str, list[float]]:
    """The seconds of every turn by who took it; the warm-up is left out."""
    taken: dict[str, list[float]] = {}
    tools = bulk_tools(bench)
    loads = CsvLoads(tools.lake, tools.tasks, partial(bench.lake.create, stream="", identity=""), tools.sender)
    for number in range(rounds + 1):
        turn = {"ours": _load(bench, loads, made, f"ours_{number}"), "spark": _append(bench, made, f"spark_{number}")}
        readers = (*DLT_READERS, DLT_DOCUMENTED) if control.pandas and number == rounds else DLT_READERS
        for reader in readers if control.child else ():
            turn[reader] = _by_dlt(control, made, folder / f"dlt-{number}-{reader.rpartition(' ')[2]}", reader)
        name = "warm-up" if number == 0 else f"round {number} of {rounds}"
        say(f"{name}: " + ", ".join(f"{who} {seconds:.2f} s" for who, seconds in turn.items()))
        for who, seconds in turn.items() if number else ():
            taken.setdefault(who, []).append(seconds)
    return taken


def _load(bench: Workbench, loads: CsvLoads, made: CsvMade, name: str) -> float:
    asked = LoadRequest(table=f"main.{name}", files=(str(made.path),), columns=dict(csv_load.COLUMNS))
    job = Job(f"0-{uuid.uuid4().hex[:8]}", "csv", name, datetime.now(UTC), params=asked.params())
    began = time.perf_counter()
    told = loads.run(job, lambda progress: None)
    seconds = time.perf_counter() - began
    if (told["rows_out"], told["quarantined"]) != (made.rows, made.bad):
        raise FrazilError(f"{made.rows} records are good and {made.bad} are bad; the load tells otherwise: {told}")
    _forget(bench, asked.table)
    _forget(bench, f"{asked.table}__quarantine")
    return seconds


def _append(bench: Workbench, made: CsvMade, name: str) -> float:
    table = f"{bench.lake.catalog.name}.main.{name}"
    bench.session.sql(
        f"CREATE TABLE {table} ({csv_load.SPARK_SCHEMA}) USING iceberg "
        "TBLPROPERTIES ('write.parquet.compression-codec' = 'zstd')"
    )
    began = time.perf_counter()
    read = bench.session.read.csv(str(made.path), schema=csv_load.SPARK_SCHEMA, header=True, escape='"')
    read.writeTo(table).append()
    seconds = time.perf_counter() - began
    bench.session.sql(f"DROP TABLE {table} PURGE")
    return seconds


def _by_dlt(control: DltControl, made: CsvMade, folder: Path, reader: str) -> float:
    told = control.load(folder, load=reader, path=str(made.path))
    shutil.rmtree(folder)
    if not made.rows <= told["rows"] <= made.records:
        raise FrazilError(f"dlt made {told['rows']} rows of {made.records} records")
    return float(told["seconds"])


def _forget(bench: Workbench, name: str) -> None:
    """Drop a table with its files: what the next turn writes shall find the same room on the disk."""
    bench.session.sql(f"DROP TABLE {bench.lake.catalog.name}.{name} PURGE")


def report(records: int, taken: Mapping[str, Sequence[float]], control: DltControl, machine: Machine) -> Report:
    ours, spark = median(taken["ours"]), median(taken["spark"])
    by_reader = {reader: median(taken[reader]) for reader in (*DLT_READERS, DLT_DOCUMENTED) if reader in taken}
    of_spark = spark / ours
    of_dlt = min(by_reader.values()) / ours if by_reader else None
    goals = {"spark": of_spark >= GOAL_OF_SPARK, "dlt": None if of_dlt is None else of_dlt >= GOAL_OF_DLT}
    dlt: dict[str, Any] = {"version": control.version, "seconds": by_reader}
    if DLT_DOCUMENTED not in by_reader:
        dlt["not_measured"] = {DLT_DOCUMENTED: "the environment of dlt has no pandas"}
    return Report(
        bench="csv",
        figure={
            "rows_per_s": records / ours,
            "seconds": ours,
            "rows": records,
            "rounds": [records / seconds for seconds in taken["ours"]],
            "ratios": {"spark": of_spark, "dlt": of_dlt},
            "goals": goals,
        },
        control={
            "what": "Spark in the same session, read.csv with a schema to an Iceberg table; and dlt on the same file",
            "rows_per_s": records / spark,
            "seconds": spark,
            "rounds": [records / seconds for seconds in taken["spark"]],
            "dlt": dlt if by_reader else {"not_measured": control.reason},
        },
        ratio=of_spark,
        goal=f"spark: ratio >= {GOAL_OF_SPARK}; dlt: ratio >= {GOAL_OF_DLT:g}",
        reached=all(goals.values()),
        machine=machine,
    )
