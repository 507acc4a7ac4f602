"""`bench query`: SQL over HTTP at `live`, against DuckDB in a warm Python process on the same metadata file.

The whole product runs as `frazil up` starts it, with the settings of the defaults but for one: the pipeline commits
only what somebody waits for. So a million rows are committed and a tail of some thousand events is not, in every answer
that is measured; each is checked for it. Askers and controls are processes of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import query_figures as figures
from benchmarks.processes import (
    Child,
    a_program,
    configure,
    processor_seconds,
    running_product,
    scratch_folder,
    settings_in,
)
from benchmarks.query_figures import Stage
from benchmarks.query_load import CONFIGURATION, TABLE, check_state, fill, reader_token
from benchmarks.report import Machine, Report
from frazil.client import Client
from frazil.runtime import DataDir
from frazil.settings import Settings

EXTRA_MS = 5.0
LARGE_MS = 20.0
LARGE_RATIO = 2.0
READABLE_P50_MS = 15.0
READABLE_P99_MS = 60.0
RATE_RATIO = 0.6
BOMBED_RATIO = 3.0
ASKING_PROCESSES = 2


def run(*, rows: int = 1_000_000, tail: int = 5_000, rounds: int = 4, asks: int = 50, seconds: float = 10.0) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, ExitStack() as running:
        settings = settings_in(folder)
        configure(settings, CONFIGURATION)
        client = running.enter_context(running_product(settings))
        filled = fill(client, settings, folder, rows=rows, tail=tail)
        stage = _stage(running, client, settings, folder, filled)
        by_shape, plain_by_shape = figures.of_each_shape(stage, rounds=rounds, asks=asks)
        many, plain_many = figures.of_many_clients(stage, rounds=rounds, seconds=seconds)
        bombed, alone = figures.of_neighbours(stage, rounds=rounds, seconds=seconds)
        check_state(client, filled)
        readable, plain_readable = figures.of_a_write(stage, rounds=rounds, asks=asks)
    goals = {
        "queries": all(_is_near(by_shape[name]["p50_ms"], plain["p50_ms"]) for name, plain in plain_by_shape.items()),
        "readable": _is_soon(readable["large_table"]),
        "clients": many["queries_per_s"] >= RATE_RATIO * plain_many["queries_per_s"],
        "neighbours": bombed["p99_ms"] <= BOMBED_RATIO * alone["p99_ms"],
    }
    return Report(
        bench="query",
        figure={
            "rows": rows,
            "tail": tail,
            "queries": {name: _beside(ours, plain_by_shape[name]) for name, ours in by_shape.items()},
            "readable": readable,
            "clients": many,
            "neighbours": {**bombed, "ratio": bombed["p99_ms"] / alone["p99_ms"]},
            "goals": goals,
        },
        control={
            "what": "DuckDB in a warm Python process on the same metadata file, without the tail; "
            "for neighbours, the same queries without bombs",
            "threads": settings.query.threads,
            "queries": plain_by_shape,
            "readable": plain_readable,
            "clients": plain_many,
            "neighbours": alone,
        },
        ratio=many["queries_per_s"] / plain_many["queries_per_s"],
        goal=f"queries: p50 <= control + {EXTRA_MS:g} ms, above {LARGE_MS:g} ms <= {LARGE_RATIO:g} x control; "
        f"readable: p50 <= {READABLE_P50_MS:g} ms, p99 <= {READABLE_P99_MS:g} ms; "
        f"clients: ratio >= {RATE_RATIO}; neighbours: p99 <= {BOMBED_RATIO:g} x p99 alone",
        reached=all(goals.values()),
        machine=machine,
    )


def _stage(running: ExitStack, client: Client, settings: Settings, folder: Path, filled: Any) -> Stage:
    def asking(name: str) -> dict[str, str]:
        return {"FRAZIL_URL": settings.address, "FRAZIL_TOKEN": reader_token(client, name)}

    reader = asking("reader")
    plain = [sys.executable, str(Path(__file__).parent / "control" / "plain_duckdb.py")]
    opened = {
        "METADATA": urlsplit(filled.metadata).path,
        "TABLE": TABLE,
        "THREADS": str(settings.query.threads),
    }
    return Stage(
        filled=filled,
        askers=[
            running.enter_context(a_program("askers", folder, environment=reader)) for _ in range(ASKING_PROCESSES)
        ],
        bomber=running.enter_context(a_program("askers", folder, environment=asking("bomber"))),
        controls=[
            running.enter_context(Child(plain, folder, environment=opened, talks=True))
            for _ in range(settings.query.workers)
        ],
        processor=lambda: processor_seconds(DataDir(settings.data_dir)),
    )


def _is_near(ours_ms: float, plain_ms: float) -> bool:
    """A small query may take some milliseconds longer, a large one twice as long."""
    return ours_ms <= (LARGE_RATIO * plain_ms if plain_ms > LARGE_MS else plain_ms + EXTRA_MS)


def _is_soon(readable: Mapping[str, float]) -> bool:
    return readable["p50_ms"] <= READABLE_P50_MS and readable["p99_ms"] <= READABLE_P99_MS


def _beside(ours: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **ours,
        "extra_ms": ours["p50_ms"] - plain["p50_ms"],
        "ratio": ours["p50_ms"] / plain["p50_ms"],
        "reached": _is_near(ours["p50_ms"], plain["p50_ms"]),
    }
