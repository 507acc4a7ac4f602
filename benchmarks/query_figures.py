"""The four figures of `bench query`, each with its control; the two take turns, so that both meet the same noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from benchmarks.processes import Child
from benchmarks.query_load import (
    BOMB_SECONDS,
    BOMBS,
    BY_ID,
    SHAPES,
    SMALL_TABLE,
    TABLE,
    Filled,
    mixed,
)
from benchmarks.report import median, percentile, say
from frazil.errors import FrazilError

Answers = list[dict[str, Any]]
CONNECTIONS = 8
BOMB_EVERY_SECONDS = 1.0
_HEAD_START_SECONDS = 2.0
_WARM_UPS = 12
_TURN = 5


@dataclass(frozen=True)
class Stage:
    """Everything that stands ready while the figures are taken."""

    filled: Filled
    askers: Sequence[Child]
    """Processes that ask the product, all with one token."""
    bomber: Child
    """Another one, with a token of its own."""
    controls: Sequence[Child]
    """As many as the product has workers, each with as many threads as one of them."""
    processor: Callable[[], Mapping[str, float]]
    """Processor seconds of the product until now, by part."""


def of_each_shape(stage: Stage, *, rounds: int, asks: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Milliseconds of every kind of query, one client, and of the control."""
    ours: dict[str, Answers] = {name: [] for name in SHAPES}
    theirs: dict[str, list[float]] = {name: [] for name in SHAPES}
    for number in range(rounds + 1):
        for name, shape in SHAPES.items():
            for queries in _turns(shape.queries(number, stage.filled, asks if number else _WARM_UPS)):
                asked = stage.askers[0].ask({"do": "one_by_one", "queries": queries})["asked"]
                mine = _checked(asked, stage, shape.rows)
                plain = stage.controls[0].ask({"queries": queries})["asked"]
                if number:
                    ours[name] += mine
                    theirs[name] += plain
        say("warm-up" if number == 0 else f"round {number} of {rounds}: " + _medians(ours, theirs))
    counted = {one["first"][0] for one in ours["count"]}
    if counted != {stage.filled.rows + stage.filled.tail}:
        raise FrazilError(f"count(*) said {counted}")
    return {name: _split(asked) for name, asked in ours.items()}, {name: _times(took) for name, took in theirs.items()}


def of_a_write(stage: Stage, *, rounds: int, asks: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Milliseconds from a receipt to the end of an answer with the event, on the large table and on a small one."""
    ours: dict[str, Answers] = {TABLE: [], SMALL_TABLE: []}
    theirs: list[float] = []
    for number in range(rounds + 1):
        count = asks if number else _WARM_UPS
        for table, asked in ours.items():
            order = {"do": "read_back", "table": table, "sql": BY_ID.format(table=table), "events": _events(count)}
            answers = stage.askers[0].ask(order)["asked"]
            asked += answers if number else []
        points = SHAPES["point_by_id"].queries(1000 + number, stage.filled, count)
        plain = stage.controls[0].ask({"queries": points})["asked"]
        theirs += plain if number else []
    figures = {
        name: {**_split(ours[table]), "receipt_p50_ms": 1000 * median([one["receipt_seconds"] for one in ours[table]])}
        for name, table in (("large_table", TABLE), ("small_table", SMALL_TABLE))
    }
    say(f"readable after {figures['large_table']['p50_ms']:.1f} ms, {figures['small_table']['p50_ms']:.1f} ms")
    return figures, _times(theirs)


def of_many_clients(stage: Stage, *, rounds: int, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Queries a second of clients side by side, and of as many control processes as there are workers."""
    ours: list[_Rate] = []
    theirs: list[_Rate] = []
    asked: Answers = []
    for number in range(rounds + 1):
        lasts = seconds if number else min(seconds, 2.0)
        orders = [
            {"queries": mixed(100 * number + 10 * at, stage.filled), "seconds": lasts}
            for at in range(max(len(stage.askers), len(stage.controls)))
        ]
        shared = {"do": "side_by_side", "connections": CONNECTIONS // len(stage.askers)}
        before = stage.processor()
        answers = _together(stage.askers, [{**order, **shared} for order in orders])
        used = {part: after - before.get(part, 0.0) for part, after in stage.processor().items()}
        plain = _together(stage.controls, orders)
        if number == 0:
            continue
        asked += [each for answer in answers for each in _checked(answer["asked"], stage)]
        ours.append(_rate(answers, {**used, "askers": _processor_seconds(answers)}))
        theirs.append(_rate(plain, {"processes": _processor_seconds(plain)}))
        say(
            f"round {number} of {rounds}: {CONNECTIONS} clients {ours[-1].queries_per_s:.0f} queries/s, "
            f"plain {theirs[-1].queries_per_s:.0f}"
        )
    figure = {"clients": CONNECTIONS, **_rates(ours), **_split(asked)}
    return figure, {"clients": len(stage.controls), **_rates(theirs)}


@dataclass(frozen=True)
class _Rate:
    """What one round reached, and the processor milliseconds that each query took, by part."""

    queries_per_s: float
    processor_ms: Mapping[str, float]


def _rate(answers: Answers, processor_seconds: Mapping[str, float]) -> _Rate:
    count = sum(len(answer["asked"]) for answer in answers)
    return _Rate(
        sum(len(answer["asked"]) / answer["seconds"] for answer in answers),
        {part: 1000 * spent / max(1, count) for part, spent in processor_seconds.items()},
    )


def _rates(rounds: Sequence[_Rate]) -> dict[str, Any]:
    return {
        "queries_per_s": median([one.queries_per_s for one in rounds]),
        "processor_ms_a_query": {
            part: median([one.processor_ms[part] for one in rounds]) for part in rounds[0].processor_ms
        },
        "rounds": [one.queries_per_s for one in rounds],
    }


def _processor_seconds(answers: Answers) -> float:
    return sum(float(answer["processor_seconds"]) for answer in answers)


def of_neighbours(stage: Stage, *, rounds: int, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Milliseconds of one client's small queries while another one throws bombs; the control is the same without."""
    bombed: Answers = []
    alone: Answers = []
    outcomes: dict[str, int] = {}
    bombs = [{"sql": sql, "timeout_s": BOMB_SECONDS} for sql in BOMBS]
    for number in range(1, rounds + 1):
        small = {"do": "side_by_side", "connections": 1, "seconds": seconds}
        alone += stage.askers[0].ask({**small, "queries": mixed(2000 + number, stage.filled)})["asked"]
        # The first bombs fall on the same queries, unmeasured: then as many are in the air as ever will be.
        throwing = {
            "do": "every",
            "every_seconds": BOMB_EVERY_SECONDS,
            "seconds": seconds + _HEAD_START_SECONDS,
            "queries": bombs,
        }
        with ThreadPoolExecutor(1) as thread:
            thrown = thread.submit(stage.bomber.ask, throwing)
            stage.askers[0].ask({**small, "seconds": _HEAD_START_SECONDS, "queries": mixed(3000, stage.filled)})
            under = stage.askers[0].ask({**small, "queries": mixed(4000 + number, stage.filled)})["asked"]
            for outcome, count in thrown.result()["outcomes"].items():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
        bombed += under
        say(
            f"round {number} of {rounds}: p99 alone {_p99_ms(alone):.1f} ms, beside bombs {_p99_ms(bombed):.1f} ms, "
            f"bombs {outcomes}"
        )
    if "answered" in outcomes:
        raise FrazilError(f"a bomb was answered, so it was none: {outcomes}")
    _checked([*alone, *bombed], stage)
    return {**_split(bombed), "bombs": outcomes}, _split(alone)


def _turns(queries: Answers) -> list[Answers]:
    """A few queries at a time: what else the machine does changes from one second to the next."""
    return [queries[first : first + _TURN] for first in range(0, len(queries), _TURN)]


def _together(children: Sequence[Child], orders: Sequence[Mapping[str, Any]]) -> Answers:
    """Every child's answer to its order, all at work at the same time."""
    with ThreadPoolExecutor(len(children)) as threads:
        return list(threads.map(Child.ask, children, orders))


def _checked(asked: Answers, stage: Stage, rows: int | None = None) -> Answers:
    """The answers, if each was made of the snapshot and of the whole tail."""
    for one in asked:
        if one["live_rows"] != stage.filled.tail or (rows is not None and one["rows"] != rows):
            raise FrazilError(f"an answer is not made of all rows: {one}")
    return asked


def _events(count: int) -> list[dict[str, Any]]:
    run = uuid4().hex
    data = {"user_id": 1, "kind": "order", "amount": 1.5, "at": "2026-01-02T03:04:05Z", "note": "read back"}
    return [{"id": f"{run}-{number}", "data": data} for number in range(count)]


def _split(asked: Answers) -> dict[str, Any]:
    """How long, and how much of it passed in the queue, otherwise in the gateway and its worker, and on the way."""
    return {
        **_times([one["seconds"] for one in asked]),
        "queued_p50_ms": 1000 * median([one["queued_seconds"] for one in asked]),
        "queued_p99_ms": 1000 * percentile([one["queued_seconds"] for one in asked], 0.99),
        "gateway_p50_ms": 1000 * median([one["gateway_seconds"] - one["queued_seconds"] for one in asked]),
        "http_p50_ms": 1000 * median([one["seconds"] - one["gateway_seconds"] for one in asked]),
    }


def _times(seconds: Sequence[float]) -> dict[str, Any]:
    return {
        "p50_ms": 1000 * percentile(seconds, 0.5),
        "p99_ms": 1000 * percentile(seconds, 0.99),
        "asked": len(seconds),
    }


def _p99_ms(asked: Answers) -> float:
    return 1000 * percentile([one["seconds"] for one in asked], 0.99)


def _medians(ours: Mapping[str, Answers], theirs: Mapping[str, list[float]]) -> str:
    return ", ".join(
        f"{name} {1000 * median([one['seconds'] for one in ours[name]]):.1f} ms ({1000 * median(theirs[name]):.1f})"
        for name in ours
    )
