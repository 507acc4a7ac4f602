"""What somebody wants tried: the request, checked field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from frazil.errors import InvalidInput, TooLarge
from frazil.events.declaration import MODEL_NAME, table_name
from frazil.serving.trials.grid import ALL_KINDS, MAX_TRIALS, bad_trial, parse_grid
from frazil.serving.trials.rule import Rule

KIND = "trial"
MAX_QUERIES = 1000
MAX_EVAL_BYTES = 1 << 20
"""An eval set travels with its job, in the catalog's database."""
_LIMITS: Mapping[str, tuple[int, int]] = {
    "search": (0, MAX_TRIALS),
    "seed": (0, 1 << 31),
    "k": (1, 1000),
    "queries": (10, MAX_QUERIES),
    "max_vectors": (1000, 10_000_000),
}


@dataclass(frozen=True)
class EvalQuestion:
    """One of an eval set: a text or a vector, and the documents that should be found, where somebody knows."""

    text: str | None = None
    vector: tuple[float, ...] | None = None
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrialAsk:
    table: str
    profile: str | None = None
    model: str | None = None
    """None: that of the profile, or of the table."""
    models: tuple[str, ...] = ()
    """Compare these models instead of indexes."""
    kinds: tuple[str, ...] = ALL_KINDS
    grid: tuple[Any, ...] | None = None
    """None: by the size of the data."""
    search: int = 0
    """Instead of a grid so many trials, half of them at random, half near the best."""
    seed: int = 0
    k: int = 10
    queries: int = 200
    """How many are made from the data, where none are given."""
    eval_set: tuple[EvalQuestion, ...] = ()
    max_vectors: int = 100_000
    """Of more than these a sample is tried."""
    rule: str = str(Rule())
    limit_seconds: float = 1800.0
    trial_seconds: float = 300.0

    def params(self) -> dict[str, Any]:
        """As the job carries it; `parse_trial` of it gives this again."""
        usual = asdict(TrialAsk(""))
        return dict(msgspec.to_builtins({name: value for name, value in asdict(self).items() if value != usual[name]}))


_FIELDS = tuple(TrialAsk.__dataclass_fields__)


def parse_trial(body: Any) -> TrialAsk:
    """A request from JSON, or `InvalidInput` that says what would be right."""
    if not isinstance(body, dict) or not isinstance(body.get("table"), str):
        raise bad_trial("a trial is an object with `table`", '{"table": "notes", "kinds": ["pq", "hnsw"]}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise InvalidInput(f"a trial has no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    told = {name: value for name, value in body.items() if value is not None}
    numbers = {name: _whole(told, name) for name in _LIMITS if name in told}
    models = _names(told, "models")
    if len(models) == 1 or len(set(models)) < len(models):
        raise bad_trial("`models` compares two or more models", '["wordllama", "minilm"]')
    for name in (*models, *([told["model"]] if "model" in told else [])):
        if not isinstance(name, str) or not MODEL_NAME.match(name):
            raise bad_trial(f"{str(name)[:80]!r} is not the name of a model", "wordllama, for example")
    kinds = _names(told, "kinds") or ALL_KINDS
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise bad_trial(f"there is no index kind {kind[:40]!r}", f"the kinds are {', '.join(ALL_KINDS)}")
    grid = told.get("grid")
    if grid is not None:
        parse_grid(grid)
        if numbers.get("search") or "kinds" in told:
            raise bad_trial("a grid says all that is tried", "leave out `search` and `kinds`")
    if models and (grid is not None or numbers.get("search") or "kinds" in told or "model" in told):
        raise bad_trial("`models` compares models, not indexes", "leave out `grid`, `search`, `kinds` and `model`")
    profile = told.get("profile")
    if profile is not None and (not isinstance(profile, str) or models):
        raise bad_trial("`profile` is the name of one, and not for `models`", "frazil profiles list")
    rule = told.get("rule", TrialAsk.rule)
    if not isinstance(rule, str):
        raise bad_trial("`rule` is a sentence", str(Rule()))
    return TrialAsk(
        table_name(told["table"]),
        profile=profile,
        model=told.get("model"),
        models=models,
        kinds=tuple(kinds),
        grid=None if grid is None else tuple(grid),
        eval_set=_eval_set(told.get("eval_set")),
        rule=str(Rule.parse(rule)),
        limit_seconds=_seconds(told, "limit_seconds", TrialAsk.limit_seconds),
        trial_seconds=_seconds(told, "trial_seconds", TrialAsk.trial_seconds),
        **numbers,
    )


def _whole(told: Mapping[str, Any], name: str) -> int:
    low, high = _LIMITS[name]
    value = told[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise bad_trial(f"`{name}` is a whole number from {low:,} to {high:,}", f"and not {str(value)[:40]!r}")
    return value


def _seconds(told: Mapping[str, Any], name: str, default: float) -> float:
    value = told.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= 86_400:
        raise bad_trial(f"`{name}` is a number of seconds from 1 to 86,400", f"and not {str(value)[:40]!r}")
    return float(value)


def _names(told: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = told.get(name, [])
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise bad_trial(f"`{name}` is a list of names", f'"{name}": ["…"]')
    return tuple(value)


def _eval_set(told: Any) -> tuple[EvalQuestion, ...]:
    if told is None:
        return ()
    if not isinstance(told, list | tuple) or not 1 <= len(told) <= MAX_QUERIES:
        raise bad_trial(f"`eval_set` is a list of 1 to {MAX_QUERIES:,} queries", '["how to skate", {"vector": […]}]')
    if len(msgspec.json.encode(told)) > MAX_EVAL_BYTES:
        raise TooLarge(f"an eval set has at most {MAX_EVAL_BYTES >> 20} MB", hint="give fewer queries, or texts")
    return tuple(_question(number, one) for number, one in enumerate(told))


def _question(number: int, told: Any) -> EvalQuestion:
    words = {"text": told} if isinstance(told, str) else told
    if not isinstance(words, Mapping):
        raise bad_trial(f"query {number} is neither a text nor an object", '{"text": "…", "expected": ["id"]}')
    for name in words:
        if name not in ("text", "vector", "expected"):
            raise bad_trial(f"query {number} has a field {str(name)[:40]!r}", "its fields are text, vector, expected")
    text, vector, expected = words.get("text"), words.get("vector"), words.get("expected") or ()
    if (text is None) == (vector is None):
        raise bad_trial(f"query {number} needs a text or a vector", "one of the two")
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise bad_trial(f"the text of query {number} is empty", "leave it out")
    if vector is not None and (not isinstance(vector, list | tuple) or not vector or not all(map(_finite, vector))):
        raise bad_trial(f"the vector of query {number} is not a list of finite numbers", "[0.1, 0.2, …]")
    if isinstance(expected, str):
        expected = [expected]
    if not isinstance(expected, list | tuple) or not all(isinstance(one, str) for one in expected):
        raise bad_trial(f"`expected` of query {number} is a list of ids", '["n1"]')
    return EvalQuestion(text, None if vector is None else tuple(map(float, vector)), tuple(expected))


def _finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
