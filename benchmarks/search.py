"""`bench search`: the ten nearest of 100,000 × 768, against LanceDB, DuckDB VSS and faiss HNSW on the same vectors.

Ours and faiss search in one thread, the others with what they take. What they find is compared with brute force, and
each is asked to look as far as it must to find 0.99 of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import search_figures as figures
from benchmarks import search_http
from benchmarks.processes import scratch_folder
from benchmarks.report import Machine, Report, say
from benchmarks.served_set import ServedSet, served_set
from benchmarks.vector_controls import ENGINES, GOAL_RECALL, VectorControls, start_controls
from benchmarks.vector_set import DIMS, WHAT, vector_set

GOAL_OF_LANCEDB = 0.3
GOAL_OF_VSS = 0.25


def run(
    *,
    rows: int = 100_000,
    rounds: int = 3,
    controls: bool = True,
    http: bool = True,
    seconds: float = 10.0,
    cache: Path | None = None,
) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, ExitStack() as running:
        made = vector_set(cache or folder, rows=rows)
        served = running.enter_context(served_set(folder / "served", made))
        with ExitStack() as beside:
            others = start_controls(beside, folder, cache=cache or folder, engines=tuple(ENGINES) if controls else ())
            for control in others.running.values():
                control.ready(made)
            served.serving.swap(served.build().entry)
            say(f"{rows:,} × {DIMS} are served")
            ours, theirs = figures.of_all(served, others, rounds=rounds)
            say(f"recall {ours['recall']:.4f}, p50 {ours['p50_ms']:.2f} ms")
            filtered, prefiltered = figures.of_filters(served, others, rounds=rounds)
        engine = partial(_seconds, served)
        over_http = search_http.measured(folder / "product", made, engine, seconds=seconds) if http else {}
    return report(rows, ours, theirs, filtered, prefiltered, over_http, others, machine)


def _seconds(served: ServedSet, numbers: Sequence[int]) -> list[float]:
    return figures.by_engine(served, numbers, None).seconds


def report(
    rows: int,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    filtered: Mapping[str, Any],
    prefiltered: Mapping[str, Any],
    over_http: Mapping[str, Any],
    others: VectorControls,
    machine: Machine,
) -> Report:
    ratios = {name: ours["p50_ms"] / told["tuned"]["p50_ms"] for name, told in theirs.items()}
    beside = {
        name: one["p50_ms"] / prefiltered[name]["p50_ms"] for name, one in filtered.items() if name in prefiltered
    }
    goals: dict[str, bool | None] = {
        "recall": figures.is_found(ours),
        "lancedb": None if "lancedb" not in ratios else ratios["lancedb"] <= GOAL_OF_LANCEDB,
        "vss": None if "vss" not in ratios else ratios["vss"] <= GOAL_OF_VSS,
        "filtered_recall": all(figures.is_found(one) for one in filtered.values()),
        "filtered": all(ratio <= 1 for ratio in beside.values()) if beside else None,
        **search_http.goals(over_http),
    }
    return Report(
        bench="search",
        figure={
            "rows": rows,
            "dims": DIMS,
            "vectors": WHAT,
            **ours,
            "filtered": {name: {**one, "ratio": beside.get(name)} for name, one in filtered.items()},
            "http": over_http or {"not_measured": "it was not asked for"},
            "ratios": ratios,
            "goals": goals,
        },
        control={
            "what": "; ".join(ENGINES.values()) + "; each tuned to find what we find, one query at a time",
            "versions": others.versions,
            **(theirs or {"not_measured": others.reason}),
            "filtered": prefiltered,
        },
        ratio=ratios.get("lancedb"),
        goal=f"recall@10 >= {GOAL_RECALL}, with every filter too; p50 <= {GOAL_OF_LANCEDB} x LanceDB, "
        f"<= {GOAL_OF_VSS} x VSS; filtered p50 <= LanceDB's prefilter; {search_http.GOAL}",
        reached=all(goals.values()),
        machine=machine,
    )
