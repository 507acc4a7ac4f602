"""`bench build`: the index of 100,000 × 768 against those of LanceDB, DuckDB VSS and faiss HNSW; and a whole artifact.

An index is counted from vectors in a file to an index on the disk, that is without loading a table. The artifact is
counted from rows, chunks and vectors that lie in files to the moment from which searches are answered from it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.processes import scratch_folder
from benchmarks.report import Machine, Report, median, say
from benchmarks.served_set import ServedSet, served_set
from benchmarks.vector_controls import ENGINES, VectorControls, start_controls
from benchmarks.vector_set import DIMS, WHAT, VectorSet, vector_set
from frazil.serving.vectors import build, default_config

GOAL_OF_LANCEDB = 0.15
GOAL_OF_VSS = 0.05
GOAL_SERVING_SECONDS = 20.0
Steps = dict[str, float]


def run(*, rows: int = 100_000, rounds: int = 1, controls: bool = True, cache: Path | None = None) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, ExitStack() as running:
        made = vector_set(cache or folder, rows=rows)
        others = start_controls(running, folder, cache=cache or folder, engines=tuple(ENGINES) if controls else ())
        indexed, artifacts = _take_turns(running, folder, made, others, rounds)
    return report(rows, indexed, artifacts, others, machine)


def _take_turns(
    running: ExitStack, folder: Path, made: VectorSet, others: VectorControls, rounds: int
) -> tuple[dict[str, list[Mapping[str, Any]]], list[Steps]]:
    """What every index took, by whose it is, and what every artifact took, by step. Ours is taken before and after
    each control: they take minutes, in which the machine may have become another."""
    indexed: dict[str, list[Mapping[str, Any]]] = {"ours": []}
    artifacts: list[Steps] = []
    served = running.enter_context(served_set(folder / "served", made))
    _index(folder / "warm-up", made)
    for number in range(1, rounds + 1):
        indexed["ours"].append(_index(folder / f"index-{number}", made))
        for name, control in others.running.items():
            indexed.setdefault(name, []).append(control.build(made))
            indexed["ours"].append(_index(folder / f"index-{number}-{name}", made))
            say(f"{name}: {indexed[name][-1]['seconds']:.1f} s, ours {indexed['ours'][-1]['seconds']:.2f} s")
        artifacts.append(_artifact(served, number))
        told = ", ".join(f"{step} {seconds:.2f}" for step, seconds in artifacts[-1].items())
        say(f"round {number} of {rounds}: an artifact serves after {sum(artifacts[-1].values()):.1f} s ({told})")
    return indexed, artifacts


def _index(folder: Path, made: VectorSet) -> Mapping[str, Any]:
    """The default index over vectors that lie in its folder already, as those of an artifact do."""
    folder.mkdir(parents=True)
    shutil.copy(made.folder / "vectors.npy", folder)
    spent = time.process_time()
    told = build(default_config(*made.vectors.shape), _mapped(folder), folder)
    taken = {"seconds": told.seconds, "processor_seconds": time.process_time() - spent, "bytes": told.bytes}
    shutil.rmtree(folder)
    return taken


def _mapped(folder: Path) -> Any:
    return VectorSet(folder, 0, 0).vectors


def _artifact(served: ServedSet, number: int) -> Steps:
    """Each round tells something else in its sentences, so that no file of it is there already but the vectors."""
    built = served.build(told=f" Round {number}.", watermark=100 + number)
    began = time.perf_counter()
    swapped = served.serving.swap(built.entry)
    assert swapped.generation == built.entry.generation
    return {**built.seconds, "fetch, verify, open, swap": time.perf_counter() - began}


def report(
    rows: int,
    indexed: Mapping[str, Sequence[Mapping[str, Any]]],
    artifacts: Sequence[Steps],
    others: VectorControls,
    machine: Machine,
) -> Report:
    seconds = {name: median([one["seconds"] for one in rounds]) for name, rounds in indexed.items()}
    ratios = {name: seconds["ours"] / taken for name, taken in seconds.items() if name != "ours"}
    wholes = [sum(steps.values()) for steps in artifacts]
    goals: dict[str, bool | None] = {
        "lancedb": None if "lancedb" not in ratios else ratios["lancedb"] <= GOAL_OF_LANCEDB,
        "vss": None if "vss" not in ratios else ratios["vss"] <= GOAL_OF_VSS,
        "serving": median(wholes) <= GOAL_SERVING_SECONDS,
    }
    return Report(
        bench="build",
        figure={
            "rows": rows,
            "dims": DIMS,
            "vectors": WHAT,
            "index_s": seconds["ours"],
            "index": _medians(indexed["ours"]),
            "index_rounds_s": [one["seconds"] for one in indexed["ours"]],
            "serving_s": median(wholes),
            "serving_rounds_s": wholes,
            "serving_steps_s": {step: median([steps[step] for steps in artifacts]) for step in artifacts[0]},
            "ratios": ratios,
            "goals": goals,
        },
        control={
            "what": "; ".join(ENGINES.values()),
            "versions": others.versions,
            **({name: _medians(indexed[name]) for name in ratios} or {"not_measured": others.reason}),
        },
        ratio=ratios.get("lancedb"),
        goal=f"index <= {GOAL_OF_LANCEDB} x LanceDB's, <= {GOAL_OF_VSS} x VSS's; "
        f"artifact serves after <= {GOAL_SERVING_SECONDS:g} s",
        reached=all(goals.values()),
        machine=machine,
    )


def _medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: median([float(one[name]) for one in rounds]) for name in rounds[0]}
