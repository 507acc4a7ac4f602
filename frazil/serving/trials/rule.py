"""Rule by which a trial wins: how much of the truth must be found, and what must be least among those that find it.

Only trials of the same thing are compared: the same shelf, model, version and number of dimensions; on data that is at
most half and at most twice as much as now; by the same k; on the machine of the newest trial. Of two trials of the same
configuration the newer counts. What an artifact cannot be built with never wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from frazil.errors import NotFound
from frazil.requests import bad_trial
from frazil.serving.trials.grid import TrialConfig
from frazil.serving.vectors.config import KINDS

MEASURES = {"latency": "p50_ms", "build": "build_seconds", "memory": "memory_bytes", "size": "size_bytes"}
UNITS = {"latency": "ms", "build": "s", "memory": "bytes", "size": "bytes"}
_WORDS = {
    "fastest": "latency",
    "cheapest": "latency",  # what a query costs is the time of the one core that answers it
    "quickest to build": "build",
    "lightest": "memory",
    "smallest": "size",
}
_SENTENCE = re.compile(rf"({'|'.join(_WORDS)}) with recall\s*(?:>=|≥)\s*(0|1|0?\.\d+|1\.0+)")
_TIMES = 2
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    recall: float = 0.99
    by: str = "latency"

    def __post_init__(self) -> None:
        if not isinstance(self.recall, int | float) or isinstance(self.recall, bool) or not 0 <= self.recall <= 1:
            raise bad_trial(f"recall {self.recall!r} is not from 0 to 1", "0.99, for example")
        if self.by not in MEASURES:
            raise bad_trial(f"there is no measure {str(self.by)[:40]!r}", f"one of {', '.join(MEASURES)}")

    @classmethod
    def parse(cls, text: str) -> Rule:
        """From words: `fastest with recall >= 0.99`."""
        match = _SENTENCE.fullmatch(" ".join(text.lower().split()))
        if match is None:
            raise bad_trial(
                f"{text[:80]!r} is not a rule",
                f"say `fastest with recall >= 0.99`; instead of fastest also {', '.join(list(_WORDS)[1:])}",
            )
        return cls(float(match[2]), _WORDS[match[1]])

    def __str__(self) -> str:
        words = {measure: word for word, measure in reversed(_WORDS.items())}
        return f"{words[self.by]} with recall >= {self.recall:g}"


@dataclass(frozen=True)
class CurrentIndex:
    """What the shelf's vectors are today."""

    shelf: str
    model: str
    version: str
    dims: int
    vectors: int


@dataclass(frozen=True)
class Winner:
    trial: Row
    because: str
    considered: int

    @property
    def config(self) -> TrialConfig:
        return TrialConfig.parse(msgspec.json.decode(self.trial["config"]))


def comparable(trials: Sequence[Row], now: CurrentIndex, k: int | None = None) -> list[Row]:
    """The trials that are valid for today's data, one for each configuration, oldest first."""
    same = [
        trial
        for trial in trials
        if (trial["purpose"], trial["state"]) == ("index", "ok")
        and (trial["shelf"], trial["model"], trial["version"], trial["dims"])
        == (now.shelf, now.model, now.version, now.dims)
        and now.vectors <= _TIMES * trial["of_vectors"]
        and trial["of_vectors"] <= _TIMES * now.vectors
        and (k is None or trial["k"] == k)
    ]
    if not same:
        return []
    newest = max(same, key=lambda trial: trial["tried_at"])
    like_newest = [trial for trial in same if (trial["machine"], trial["k"]) == (newest["machine"], newest["k"])]
    latest: dict[str, Row] = {}
    for trial in sorted(like_newest, key=lambda trial: trial["tried_at"]):
        latest.pop(trial["config"], None)
        latest[trial["config"]] = trial
    return list(latest.values())


def leading(trials: Sequence[Row], rule: Rule) -> Row | None:
    """The one that wins among these; at a tie the one that finds more, then by build and configuration."""
    good = [trial for trial in trials if trial["kind"] in KINDS and trial["recall"] >= rule.recall]
    measure = MEASURES[rule.by]
    return min(
        good,
        key=lambda trial: (trial[measure], -trial["recall"], trial["build_seconds"], trial["config"]),
        default=None,
    )


def best(trials: Sequence[Row], rule: Rule, now: CurrentIndex, k: int | None = None) -> Winner:
    """The winner under the rule; `NotFound` with the reason if there is none."""
    counted = comparable(trials, now, k)
    won = leading(counted, rule)
    if won is not None:
        sample = f", a sample of {won['of_vectors']:,}" if won["vectors"] < won["of_vectors"] else ""
        measured = won[MEASURES[rule.by]]
        because = (
            f"{rule}: recall@{won['k']} {won['recall']:.4f}, {rule.by} {measured:,.4g} {UNITS[rule.by]} on"
            f" {won['vectors']:,} vectors{sample} (run {won['run']})"
        )
        return Winner(won, because, len(counted))
    if not counted:
        others = len(trials)
        why = f"none of its {others:,} trials is of the data of today" if others else "nothing was tried yet"
        raise NotFound(f"{now.shelf}: {why}", code="no_trials", hint=f"frazil trial {_short(now.shelf)}")
    able = [trial["recall"] for trial in counted if trial["kind"] in KINDS]
    most = f"the most was {max(able):.4f}" if able else "none can be built into an artifact"
    raise NotFound(
        f"no trial of {now.shelf} has recall >= {rule.recall:g}: {most}",
        code="no_trial_qualifies",
        hint="require less, or try more: --search 20",
    )


def _short(shelf: str) -> str:
    return shelf.partition("@")[0].removeprefix("main.")
