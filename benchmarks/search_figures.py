"""The figures of `bench search` that need no server: recall and milliseconds, with and without a filter.

Ours runs in this process, every control in its own. They take turns with a few queries at a time, so that all of them
meet the same noise. All are asked for the ids of the ten nearest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import percentile, say
from benchmarks.served_set import ServedSet
from benchmarks.vector_controls import GOAL_RECALL, Asked, Options, VectorControls
from benchmarks.vector_set import SHARES, Floats, K, VectorSet
from frazil.serving import Bitmap
from frazil.serving.search import Allowed, SearchQuery, SearchState

ASKS = 200
"""Queries of a round."""
TURN = 10
_WARM_UPS = 20
_TUNED_ON = 200
Asking = Callable[[Sequence[int]], Asked]


@dataclass
class Taken:
    """All that one of them was asked and answered."""

    numbers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    found: list[list[int]] = field(default_factory=list)

    def add(self, numbers: Sequence[int], asked: Asked) -> None:
        self.numbers += numbers
        self.seconds += asked.seconds
        self.found += asked.found

    def told(self, made: VectorSet, share: float | None = None) -> dict[str, Any]:
        return {
            "recall": made.recall(self.found, self.numbers, share),
            "p50_ms": 1000 * percentile(self.seconds, 0.5),
            "p99_ms": 1000 * percentile(self.seconds, 0.99),
            "asked": len(self.seconds),
        }


def of_all(served: ServedSet, controls: VectorControls, *, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without a filter: ours, the engine with rows and the index alone; the controls as they come, and tuned."""
    made = served.made
    asking: dict[str, Asking] = {
        "ours": lambda numbers: by_engine(served, numbers, None),
        "index": lambda numbers: _by_index(served, numbers),
    }
    chosen: dict[str, Options] = {}
    for name, control in controls.running.items():
        chosen[name], found = control.tuned(made, range(min(_TUNED_ON, made.queries)))
        say(f"{name}: recall {found:.4f} with {dict(chosen[name]) or 'its own parameters'}")
        asking[name] = lambda numbers, control=control: control.ask(made, numbers)  # type: ignore[misc]
        if chosen[name]:
            asking[f"{name} tuned"] = lambda numbers, control=control, options=chosen[name]: control.ask(  # type: ignore[misc]
                made, numbers, options=options
            )
    taken = _in_turns(made, asking, rounds)
    told = {name: one.told(made) for name, one in taken.items()}
    theirs = {
        name: {
            "as_it_comes": told[name],
            "tuned": {**told.get(f"{name} tuned", told[name]), "options": dict(chosen[name])},
        }
        for name in controls.running
    }
    return {**told["ours"], "index": told["index"]}, theirs


def of_filters(served: ServedSet, controls: VectorControls, *, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """With filters that leave less and less, against LanceDB's prefilter. Ours judges the filter for every query."""
    made = served.made
    ours, theirs = {}, {}
    lance = controls.running.get("lancedb")
    for share in SHARES:
        asking: dict[str, Asking] = {"ours": lambda numbers, share=share: by_engine(served, numbers, share)}  # type: ignore[misc]
        options: Options = {}
        if lance is not None:
            options, _ = lance.tuned(made, range(min(_TUNED_ON, made.queries)), share=share)
            asking["lancedb"] = lambda numbers, share=share, options=options: lance.ask(  # type: ignore[misc]
                made, numbers, share=share, options=options
            )
        taken = _in_turns(made, asking, rounds)
        name = f"{100 * share:g} %"
        ours[name] = taken["ours"].told(made, share)
        if lance is not None:
            theirs[name] = {**taken["lancedb"].told(made, share), "options": dict(options)}
        say(f"filter of {name}: " + _medians(taken))
    return ours, theirs


def by_engine(served: ServedSet, numbers: Sequence[int], share: float | None) -> Asked:
    """Ours as the gateway asks it: enter a state, judge the filter, find the nearest, take their ids from the rows."""
    below = served.made.below(share)
    seconds, found = [], []
    for number in numbers:
        vector = served.made.asked[number]
        began = time.perf_counter()
        ask = SearchQuery(vector=vector, mode="vector", k=K, columns=("_id",), passages=False, snippet_characters=0)
        with served.serving.reading() as state:
            hits = state.search(ask, None if below is None else _allowed(state, below)).hits
        seconds.append(time.perf_counter() - began)
        found.append([int(hit.key[0][1:]) for hit in hits])
    return Asked(seconds, found)


def _allowed(state: SearchState, below: int) -> Allowed:
    """The filter `slot < below` over the generation's rows."""
    assert state.generation is not None
    slots = state.generation.contents.rows.column("slot").to_numpy()
    return Allowed(Bitmap.of_mask(slots < below))


def _by_index(served: ServedSet, numbers: Sequence[int]) -> Asked:
    seconds, found = [], []
    with served.serving.reading() as reading:
        assert reading.generation is not None and reading.generation.index is not None
        for number in numbers:
            vector: Floats = served.made.asked[number]
            began = time.perf_counter()
            _, ordinals = reading.generation.index.search(vector, K)
            seconds.append(time.perf_counter() - began)
            found.append(ordinals[0].tolist())
    return Asked(seconds, found)


def _in_turns(made: VectorSet, asking: Mapping[str, Asking], rounds: int) -> dict[str, Taken]:
    """Other queries in each round, a few at a time of each; one turn before that nobody times."""
    taken = {name: Taken() for name in asking}
    for ask in asking.values():
        ask(range(min(_WARM_UPS, made.queries)))
    for turn in range(rounds * ASKS // TURN):
        first = turn * TURN % made.queries
        numbers = range(first, min(first + TURN, made.queries))
        for name, ask in asking.items():
            taken[name].add(numbers, ask(numbers))
    return taken


def is_found(told: Mapping[str, Any]) -> bool:
    return float(told["recall"]) >= GOAL_RECALL


def _medians(taken: Mapping[str, Taken]) -> str:
    return ", ".join(f"{name} {1000 * percentile(one.seconds, 0.5):.2f} ms" for name, one in taken.items())
