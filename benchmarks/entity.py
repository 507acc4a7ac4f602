"""`bench entity`: upserts of an entity, from receipt to answer against a log table, and their fold against a MERGE."""

from __future__ import annotations

import asyncio

from benchmarks.entity_fold import folds_and_merges
from benchmarks.entity_reading import Reading, read_back
from benchmarks.processes import scratch_folder, settings_in
from benchmarks.report import Machine, Report, median
from benchmarks.workbench import spark_workbench

GOAL_OF_READING = 1.5
"""As for a log table, give or take what two ways of reading differ by on a noisy machine."""
GOAL_OF_FOLD = 2.0


def run(*, rows: int = 1_000_000, changes: int = 100_000, batches: int = 40, rounds: int = 3) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        taken = read_back(folder, rows=rows, batches=batches)
        with spark_workbench(settings_in(folder / "fold")) as bench:
            folds, merges = asyncio.run(folds_and_merges(bench, folder, rows=rows, changes=changes, rounds=rounds))
    return report(rows, changes, taken, folds, merges, machine)


def report(
    rows: int,
    changes: int,
    taken: dict[str, Reading],
    folds: list[float],
    merges: list[float],
    machine: Machine,
) -> Report:
    entity, log = taken["entity"].told(), taken["log"].told()
    ratios = {
        "visible_p50": entity["p50_ms"] / log["p50_ms"],
        "visible_p99": entity["p99_ms"] / log["p99_ms"],
        "fold": median(folds) / median(merges),
    }
    goals = {"visible": ratios["visible_p50"] <= GOAL_OF_READING, "fold": ratios["fold"] <= GOAL_OF_FOLD}
    return Report(
        bench="entity",
        figure={
            "rows": rows,
            "changes": changes,
            "visible": {**entity, "batches": len(taken["entity"].visible)},
            "fold_s": median(folds),
            "fold_rounds_s": folds,
            "ratios": ratios,
            "goals": goals,
        },
        control={
            "what": "the same batches sent to a log table of as many rows; and one Spark MERGE of the same changes",
            "visible": log,
            "merge_s": median(merges),
            "merge_rounds_s": merges,
        },
        ratio=ratios["fold"],
        goal=f"visible: p50 ratio <= {GOAL_OF_READING}; fold: ratio <= {GOAL_OF_FOLD:g}",
        reached=all(goals.values()),
        machine=machine,
    )
