"""`frazil bench`: measure what frazil reaches here, beside a control in the same run; one JSON line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.gateway.cli.output import AsJson

if TYPE_CHECKING:
    from frazil.bench import Report

app = typer.Typer(
    help="Measure this machine: one JSON line with our figure, the control of the same run, and their ratio.",
    no_args_is_help=True,
)

Rounds = Annotated[int, typer.Option(min=1, help="How often ours and the control take turns; the medians count.")]


@app.command()
def ingest(
    events: Annotated[int, typer.Option(min=1, help="Events in each round.")] = 400_000,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Events a second over HTTP, against plain nats-py on the same server."""
    from frazil.bench import ingest as bench

    _print(lambda: bench.run(events=events, rounds=rounds))


@app.command()
def commit(
    events: Annotated[int, typer.Option(min=1, help="Events in the backlog.")] = 1_000_000,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Rows a second from the bus into Iceberg, against one Spark append of the same rows."""
    from frazil.bench import commit as bench

    _print(lambda: bench.run(events=events, rounds=rounds))


@app.command()
def freshness(
    events: Annotated[int, typer.Option(min=1, help="Events, one at a time.")] = 100,
    rounds: Rounds = 4,
    as_json: AsJson = True,
) -> None:
    """Seconds until an event is visible, against a bare Spark append of one row."""
    from frazil.bench import freshness as bench

    _print(lambda: bench.run(events=events, rounds=rounds))


@app.command()
def growth(
    commits: Annotated[int, typer.Option(min=2, help="Commits of the old table.")] = 2_000,
    young: Annotated[int, typer.Option(min=1, help="Commits of the young table.")] = 100,
    measured: Annotated[int, typer.Option(min=1, help="Commits of each that are measured.")] = 50,
    as_json: AsJson = True,
) -> None:
    """Seconds of a commit to a table with many commits behind it, against one with few."""
    from frazil.bench import growth as bench

    _print(lambda: bench.run(commits=commits, young=young, measured=measured))


@app.command()
def memory(
    events: Annotated[int, typer.Option(min=1, help="Events published before it is measured.")] = 20_000,
    idle_seconds: Annotated[float, typer.Option(min=0, help="How long it rests before it is measured.")] = 10.0,
    as_json: AsJson = True,
) -> None:
    """Bytes of the whole embedded group when idle, against a bare Spark session."""
    from frazil.bench import memory as bench

    _print(lambda: bench.run(events=events, idle_seconds=idle_seconds))


@app.command()
def query(
    rows: Annotated[int, typer.Option(min=1_000, help="Committed rows of the table.")] = 1_000_000,
    tail: Annotated[int, typer.Option(min=1, help="Events on top of them that are not committed.")] = 5_000,
    rounds: Rounds = 4,
    asks: Annotated[int, typer.Option(min=1, help="Queries of each kind in a round.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long clients ask side by side in a round.")] = 10.0,
    as_json: AsJson = True,
) -> None:
    """Live SQL over HTTP, alone, side by side and beside bombs, against plain DuckDB on the same files."""
    from frazil.bench import query as bench

    _print(lambda: bench.run(rows=rows, tail=tail, rounds=rounds, asks=asks, seconds=seconds))


@app.command()
def upkeep(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the table that is sorted meanwhile.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each half of a round takes.")] = 20.0,
    rounds: Rounds = 3,
    as_json: AsJson = True,
) -> None:
    """Milliseconds until a receipt while tables are compacted, against the same without."""
    from frazil.bench import upkeep as bench

    _print(lambda: bench.run(rows=rows, seconds=seconds, rounds=rounds))


@app.command()
def demo(rounds: Rounds = 1, as_json: AsJson = True) -> None:
    """Seconds of `frazil demo --once`, against the start of a bare Spark session."""
    from frazil.bench import demo as bench

    _print(lambda: bench.run(rounds=rounds))


def _print(measure: Callable[[], Report]) -> None:
    import json

    from frazil.bench.report import figures_on_stdout

    with figures_on_stdout() as out:
        report = measure()
        print(json.dumps(report.body(), ensure_ascii=False), file=out, flush=True)
