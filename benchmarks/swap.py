"""`bench swap`: what clients notice when generations change places: their slowest search against the p99 without swaps.

Clients are threads of the process that serves, as in the gateway: what a swap takes from them, be it the interpreter or
a core, it takes here too. They pause after every answer, so that the machine is busy and not full. Each generation has
other sentences, so that an answer of two of them would show.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import scratch_folder
from benchmarks.report import Machine, Report, median, percentile, say
from benchmarks.served_set import Built, ServedSet, served_set
from benchmarks.vector_set import DIMS, WHAT, K, vector_set
from frazil.errors import FrazilError
from frazil.serving.search import SearchQuery

GOAL_RATIO = 3.0
CLIENTS = 4
PAUSE_SECONDS = 0.01
_GENERATIONS = 2


@dataclass
class Heard:
    """What the clients heard in one stretch of time."""

    seconds: list[float] = field(default_factory=list)
    mixed: int = 0
    errors: list[str] = field(default_factory=list)
    generations: set[str] = field(default_factory=set)


def run(*, rows: int = 100_000, rounds: int = 3, swaps: int = 10, cache: Path | None = None) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        made = vector_set(cache or folder, rows=rows)
        with served_set(folder / "served", made) as served:
            built = [served.build(told=f" Generation {number}.") for number in range(_GENERATIONS)]
            served.serving.swap(built[0].entry)
            say(f"{_GENERATIONS} generations of {rows:,} × {DIMS} are built")
            _listen(served, built, swaps=1)  # every file is local then, and every page was read
            quiet: list[Heard] = []
            swapped: list[Heard] = []
            took: list[float] = []
            for number in range(1, rounds + 1):
                began = time.perf_counter()
                heard, seconds = _listen(served, built, swaps=swaps)
                swapped.append(heard)
                took += seconds
                quiet.append(_listen(served, built, seconds=time.perf_counter() - began)[0])
                say(f"round {number} of {rounds}: {_told(quiet[-1])} without swaps, {_told(heard)} with {swaps}")
    return report(rows, quiet, swapped, took, machine)


def _listen(
    served: ServedSet, built: Sequence[Built], *, swaps: int = 0, seconds: float = 0.0
) -> tuple[Heard, list[float]]:
    """Let the clients ask during so many swaps, or for some seconds; what they heard, and the seconds of each swap."""
    heard, over, took = Heard(), threading.Event(), []
    told = {one.entry.generation: f" Generation {number}." for number, one in enumerate(built)}
    clients = [threading.Thread(target=_client, args=(served, told, seed, heard, over)) for seed in range(CLIENTS)]
    for thread in clients:
        thread.start()
    try:
        time.sleep(seconds or PAUSE_SECONDS)
        for _ in range(swaps):
            current = served.serving.status().generation
            following = next(one.entry for one in built if one.entry.generation != current)
            took.append(served.serving.swap(following).seconds)
    finally:
        over.set()
        for thread in clients:
            thread.join()
    return heard, took


def _client(served: ServedSet, told: Mapping[str, str], seed: int, heard: Heard, over: threading.Event) -> None:
    choose = random.Random(seed)  # noqa: S311 - which queries come first
    while not over.wait(PAUSE_SECONDS):
        vector = served.made.asked[choose.randrange(served.made.queries)]
        began = time.perf_counter()
        try:
            with served.serving.reading() as state:
                found = state.search(SearchQuery(vector=vector, mode="vector", k=K, snippet_characters=0))
        except FrazilError as error:
            heard.errors.append(error.code)
            continue
        heard.seconds.append(time.perf_counter() - began)
        generation = found.generation or ""
        heard.generations.add(generation)
        if not all(str(hit.row["body"]).endswith(told.get(generation, "?")) for hit in found.hits):
            heard.mixed += 1


def report(
    rows: int, quiet: Sequence[Heard], swapped: Sequence[Heard], took: Sequence[float], machine: Machine
) -> Report:
    normal_p99 = median([percentile(one.seconds, 0.99) for one in quiet])
    ratios = [max(one.seconds) / percentile(beside.seconds, 0.99) for one, beside in zip(swapped, quiet, strict=True)]
    mixed, errors = sum(one.mixed for one in swapped), [code for one in swapped for code in one.errors]
    goals = {"slowest": median(ratios) <= GOAL_RATIO, "errors": not errors, "mixed": not mixed}
    return Report(
        bench="swap",
        figure={
            "rows": rows,
            "dims": DIMS,
            "vectors": WHAT,
            "clients": CLIENTS,
            "swaps": len(took),
            "swap_p50_s": median(took),
            **_times(swapped),
            "generations": len(set().union(*(one.generations for one in swapped))),
            "errors": errors,
            "mixed": mixed,
            "ratio_rounds": ratios,
            "goals": goals,
        },
        control={
            "what": "the same clients for as long, without swaps",
            **_times(quiet),
            "normal_p99_ms": 1000 * normal_p99,
        },
        ratio=median(ratios),
        goal=f"slowest search during swaps <= {GOAL_RATIO:g} x p99 without, no error, no mixed answer",
        reached=all(goals.values()),
        machine=machine,
    )


def _times(heard: Sequence[Heard]) -> dict[str, Any]:
    """Of every round, and the medians of the rounds."""
    return {
        "p50_ms": 1000 * median([percentile(one.seconds, 0.5) for one in heard]),
        "p99_ms": 1000 * median([percentile(one.seconds, 0.99) for one in heard]),
        "max_ms": 1000 * median([max(one.seconds) for one in heard]),
        "asked": sum(len(one.seconds) for one in heard),
    }


def _told(heard: Heard) -> str:
    p99, slowest = percentile(heard.seconds, 0.99), max(heard.seconds)
    return f"p99 {1000 * p99:.1f} ms, slowest {1000 * slowest:.1f} ms"
