"""`frazil bench`: the benchmarks of a clone, each with a control in the same run; one JSON line each."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import frazil
from frazil.cli.options import AsJson
from frazil.errors import Misconfigured

app = typer.Typer(
    help="Measure this machine: one JSON line with our figure, the control of the same run, and their ratio.",
    no_args_is_help=True,
)

Rounds = Annotated[int, typer.Option(min=1, help="Rounds of frazil and the control, in turns; medians are reported.")]

WithDlt = Annotated[bool, typer.Option("--dlt/--no-dlt", help="Measure dlt too.")]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for the environment of dlt. Default: a temporary one."),
]


@app.command()
def ingest(
    events: Annotated[int, typer.Option(min=1, help="Events in each round.")] = 400_000,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Events a second over HTTP, against plain nats-py on the same server."""
    _measure("ingest", events=events, rounds=rounds)


@app.command()
def commit(
    events: Annotated[int, typer.Option(min=1, help="Events in the backlog.")] = 1_000_000,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Rows a second from the bus into Iceberg, against one Spark append of the same rows."""
    _measure("commit", events=events, rounds=rounds)


@app.command()
def freshness(
    events: Annotated[int, typer.Option(min=1, help="Events, one at a time.")] = 100,
    rounds: Rounds = 4,
    as_json: AsJson = True,
) -> None:
    """Seconds until an event is visible, against a bare Spark append of one row."""
    _measure("freshness", events=events, rounds=rounds)


@app.command()
def growth(
    commits: Annotated[int, typer.Option(min=2, help="Commits of the old table.")] = 2_000,
    young: Annotated[int, typer.Option(min=1, help="Commits of the young table.")] = 100,
    measured: Annotated[int, typer.Option(min=1, help="Commits of each that are measured.")] = 50,
    as_json: AsJson = True,
) -> None:
    """Seconds of a commit to a table with many commits, against one with few."""
    _measure("growth", commits=commits, young=young, measured=measured)


@app.command()
def memory(
    events: Annotated[int, typer.Option(min=1, help="Events published before it is measured.")] = 20_000,
    idle_seconds: Annotated[float, typer.Option(min=0, help="Seconds of rest before the measurement.")] = 10.0,
    as_json: AsJson = True,
) -> None:
    """Memory of all parts when idle, against a bare Spark session."""
    _measure("memory", events=events, idle_seconds=idle_seconds)


@app.command()
def query(
    rows: Annotated[int, typer.Option(min=1_000, help="Committed rows of the table.")] = 1_000_000,
    tail: Annotated[int, typer.Option(min=1, help="Events on top of them that are not committed.")] = 5_000,
    rounds: Rounds = 4,
    asks: Annotated[int, typer.Option(min=1, help="Queries of each kind in a round.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds that clients query in parallel in a round.")] = 10.0,
    as_json: AsJson = True,
) -> None:
    """Live SQL over HTTP, alone, in parallel and next to heavy queries, against plain DuckDB on the same files."""
    _measure("query", rows=rows, tail=tail, rounds=rounds, asks=asks, seconds=seconds)


@app.command()
def upkeep(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the table that is sorted meanwhile.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each half of a round takes.")] = 20.0,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Milliseconds until a receipt while tables are compacted, against the same without."""
    _measure("upkeep", rows=rows, seconds=seconds, rounds=rounds)


@app.command()
def csv(
    rows: Annotated[int, typer.Option(min=1, help="Records of the file.")] = 2_000_000,
    rounds: Rounds = 3,
    dlt: WithDlt = True,
    cache: Cache = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Instead: peak memory of `frazil up` while it loads a large file.")
    ] = False,
    gigabytes: Annotated[float, typer.Option(min=0.001, help="How large that file is.")] = 5.0,
    as_json: AsJson = True,
) -> None:
    """Rows a second from a CSV file into Iceberg, against plain Spark and dlt on the same file."""
    if memory:
        _measure("csv_memory", gigabytes=gigabytes)
    else:
        _measure("csv", rows=rows, rounds=rounds, dlt=dlt, cache=cache)


@app.command()
def postgres(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 2_000_000,
    rounds: Rounds = 3,
    dlt: WithDlt = True,
    cache: Cache = None,
    dsn_env: Annotated[
        str | None,
        typer.Option(help="Variable with the DSN of a database to make the table in; without it a server is started."),
    ] = None,
    as_json: AsJson = True,
) -> None:
    """Rows a second from a Postgres table into its archive, against the raw COPY of it and dlt."""
    _measure("postgres", rows=rows, rounds=rounds, dlt=dlt, cache=cache, dsn_env=dsn_env)


@app.command()
def entity(
    rows: Annotated[int, typer.Option(min=1_000, help="Records of the entity.")] = 1_000_000,
    changes: Annotated[int, typer.Option(min=1_000, help="Changes that are folded at once.")] = 100_000,
    batches: Annotated[int, typer.Option(min=1, help="Batches of 1,000 upserts that are read back.")] = 40,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Upserts of an entity: seconds until they are read, against a log table; and the fold, against one Spark MERGE."""
    _measure("entity", rows=rows, changes=changes, batches=batches, rounds=rounds)


Vectors = Annotated[int, typer.Option(min=1_000, help="Vectors of 768 numbers, each of a real sentence.")]
WithControls = Annotated[
    bool, typer.Option("--controls/--no-controls", help="Measure LanceDB, DuckDB VSS and faiss HNSW too.")
]
VectorCache = Annotated[
    Path | None,
    typer.Option(help="Folder for vectors, controls and indexes. Default: a temporary one."),
]


@app.command()
def search(
    rows: Vectors = 100_000,
    rounds: Rounds = 3,
    controls: WithControls = True,
    http: Annotated[
        bool, typer.Option("--http/--no-http", help="Measure POST /v1/search too, on the whole product.")
    ] = True,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long 8 clients search over HTTP.")] = 10.0,
    cache: VectorCache = None,
    as_json: AsJson = True,
) -> None:
    """Recall and milliseconds of the ten nearest, filtered or not, against LanceDB, DuckDB VSS and faiss HNSW."""
    _measure("search", rows=rows, rounds=rounds, controls=controls, http=http, seconds=seconds, cache=cache)


@app.command()
def build(
    rows: Vectors = 100_000,
    rounds: Rounds = 1,
    controls: WithControls = True,
    cache: VectorCache = None,
    as_json: AsJson = True,
) -> None:
    """Seconds of an index, against those of LanceDB, DuckDB VSS and faiss HNSW; and of a whole artifact."""
    _measure("build", rows=rows, rounds=rounds, controls=controls, cache=cache)


@app.command()
def swap(
    rows: Vectors = 100_000,
    rounds: Rounds = 3,
    swaps: Annotated[int, typer.Option(min=1, help="Swaps in each round.")] = 10,
    cache: VectorCache = None,
    as_json: AsJson = True,
) -> None:
    """Milliseconds of searches while generations are swapped, against the same without."""
    _measure("swap", rows=rows, rounds=rounds, swaps=swaps, cache=cache)


@app.command()
def demo(rounds: Rounds = 1, as_json: AsJson = True) -> None:
    """Seconds of `frazil demo --once`, against the start of a bare Spark session."""
    _measure("demo", rounds=rounds)


def _measure(benchmark: str, **options: Any) -> None:
    """Run a module of `benchmarks/` and print its report on standard output; what it logs goes to standard error."""
    module = _module(benchmark)
    with _module("report").figures_on_stdout() as out:
        report = module.run(**options)
        print(json.dumps(report.body(), ensure_ascii=False), file=out, flush=True)


def _module(name: str) -> Any:
    """A module of `benchmarks/`, which is next to the package in a clone and is not installed."""
    clone = Path(frazil.__file__).parent.parent
    if not (clone / "benchmarks" / "__init__.py").is_file():
        raise Misconfigured(
            f"frazil is installed in {clone} without its benchmarks",
            code="no_benchmarks",
            hint="clone the repository, run `make setup` there, and `.venv/bin/frazil bench` from it",
        )
    if str(clone) not in sys.path:
        sys.path.append(str(clone))
    return importlib.import_module(f"benchmarks.{name}")
