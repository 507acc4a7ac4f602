"""`bench postgres`: a Postgres table becomes a night of its archive, against the raw COPY of it and against dlt.

Ours is the archive of the product: exported snapshot, ranges read side by side by binary COPY, every value converted,
files synced to the disk, publish, report. The COPY is psql's, binary, of the whole table to nowhere. dlt is a warm
process with its fastest backend, into an Iceberg table of its filesystem destination.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.dlt_control import DltControl, start_dlt
from benchmarks.postgres_server import Database, database
from benchmarks.processes import scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, say
from benchmarks.workbench import Workbench, bulk_tools, spark_workbench
from frazil.errors import FrazilError
from frazil.pipeline import SourceSettings
from frazil.pipeline.sources.postgres import PostgresLoads
from frazil.registry import Job
from frazil.requests import PostgresRequest

GOAL_OF_COPY = 0.6
GOAL_OF_DLT = 3.0
DLT_BACKENDS = ("connectorx",)
"""Its fastest: `pyarrow` took four times as long on this table."""
TABLE = "frazil_bench_orders"
_MAKE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY, customer_id integer, reference uuid, status text, amount numeric(12,2), rate float8,
    is_paid boolean, ordered_on date, created_at timestamptz, updated_at timestamp, note text, attributes jsonb)
"""
_FILL = f"""
INSERT INTO {TABLE}
SELECT i, (i * 7919) % 1000000, md5(i::text)::uuid, (ARRAY['new', 'paid', 'sent', 'returned'])[1 + i % 4],
       ((i * 104729) % 10000000)::numeric / 100, random(), i % 3 = 0, date '2022-01-01' + (i % 1000)::integer,
       timestamptz '2022-01-01 00:00:00Z' + i * interval '17 seconds',
       CASE WHEN i % 10 = 0 THEN NULL ELSE timestamp '2022-01-02 03:04:05.678901' + i * interval '19 seconds' END,
       'order ' || i || ', leave it at the door', jsonb_build_object('channel', 'web', 'items', i % 9)
FROM generate_series(1, {{rows}}::bigint) AS made(i)
"""  # noqa: S608 - made of constants


def run(
    *,
    rows: int = 2_000_000,
    rounds: int = 3,
    dlt: bool = True,
    cache: Path | None = None,
    dsn_env: str | None = None,
) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, ExitStack() as running:
        source = running.enter_context(database(dsn_env))
        running.callback(source.run, f"DROP TABLE IF EXISTS {TABLE}")
        for statement in (_MAKE, _FILL.format(rows=rows), f"VACUUM ANALYZE {TABLE}"):
            source.run(statement)
        say(f"{rows:,} rows are in Postgres")
        control = start_dlt(running, folder, cache=cache, wanted=dlt, environment={"SOURCE_DSN": source.url})
        bench = running.enter_context(spark_workbench(settings_in(folder)))
        taken = _take_turns(bench, control, source, folder, rows=rows, rounds=rounds)
    return report(rows, taken, control, machine)


def _take_turns(
    bench: Workbench, control: DltControl, source: Database, folder: Path, *, rows: int, rounds: int
) -> dict[str, list[float]]:
    """The seconds of every turn by who took it; the warm-up is left out."""
    dsn_file = folder / "dsn"
    dsn_file.touch(mode=0o600)
    dsn_file.write_text(source.url)
    sources = {"bench": SourceSettings(dsn_file=dsn_file)}
    loads = PostgresLoads(bulk_tools(bench), sources, reports=folder / "reports")
    taken: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        turn = {"ours": _archive(bench, loads, rows), "copy": _copy(source)}
        for backend in DLT_BACKENDS if control.child else ():
            turn[backend] = _by_dlt(control, folder / f"dlt-{number}-{backend}", backend, rows)
        name = "warm-up" if number == 0 else f"round {number} of {rounds}"
        say(f"{name}: " + ", ".join(f"{who} {seconds:.2f} s" for who, seconds in turn.items()))
        for who, seconds in turn.items() if number else ():
            taken.setdefault(who, []).append(seconds)
    return taken


def _archive(bench: Workbench, loads: PostgresLoads, rows: int) -> float:
    asked = PostgresRequest(source="bench", tables=(TABLE,))
    job = Job(f"0-{uuid.uuid4().hex[:8]}", "postgres", "bench", datetime.now(UTC), params=asked.params())
    began = time.perf_counter()
    told = loads.run(job, lambda progress: None)
    seconds = time.perf_counter() - began
    found = [line.get("rows") for line in told["tables"]]
    if found != [rows]:
        raise FrazilError(f"the table has {rows} rows; the archive tells otherwise: {told}")
    bench.session.sql(f"DROP TABLE {bench.lake.catalog.name}.archive.{TABLE} PURGE")
    return seconds


def _copy(source: Database) -> float:
    began = time.perf_counter()
    source.run(f"COPY {TABLE} TO STDOUT (FORMAT binary)")
    return time.perf_counter() - began


def _by_dlt(control: DltControl, folder: Path, backend: str, rows: int) -> float:
    told = control.load(folder, load="postgres", table=TABLE, backend=backend)
    shutil.rmtree(folder)
    if told["rows"] != rows:
        raise FrazilError(f"dlt made {told['rows']} rows of {rows}")
    return float(told["seconds"])


def report(rows: int, taken: Mapping[str, Sequence[float]], control: DltControl, machine: Machine) -> Report:
    ours, copy = median(taken["ours"]), median(taken["copy"])
    by_backend = {backend: median(taken[backend]) for backend in DLT_BACKENDS if backend in taken}
    of_copy = copy / ours
    of_dlt = min(by_backend.values()) / ours if by_backend else None
    goals = {"copy": of_copy >= GOAL_OF_COPY, "dlt": None if of_dlt is None else of_dlt >= GOAL_OF_DLT}
    dlt = {"version": control.version, "seconds": by_backend} if by_backend else {"not_measured": control.reason}
    return Report(
        bench="postgres",
        figure={
            "rows_per_s": rows / ours,
            "seconds": ours,
            "rows": rows,
            "rounds": [rows / seconds for seconds in taken["ours"]],
            "ratios": {"copy": of_copy, "dlt": of_dlt},
            "goals": goals,
        },
        control={
            "what": "psql's binary COPY of the table to nowhere; and dlt from the same table into Iceberg",
            "rows_per_s": rows / copy,
            "seconds": copy,
            "rounds": [rows / seconds for seconds in taken["copy"]],
            "dlt": dlt,
        },
        ratio=of_copy,
        goal=f"copy: ratio >= {GOAL_OF_COPY}; dlt: ratio >= {GOAL_OF_DLT:g}",
        reached=all(goals.values()),
        machine=machine,
    )
