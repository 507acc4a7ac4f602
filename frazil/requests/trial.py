"""Trial request: indexes or models of a table that are tried side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from frazil.errors import InvalidInput, TooLarge
from frazil.events.declaration import MODEL_NAME, table_name
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest

MAX_TRIALS = 200
MAX_QUERIES = 1000
MAX_EVAL_BYTES = 1 << 20
"""An eval set travels with its job, in the catalog's database."""
_DEFAULT_RULE = "fastest with recall >= 0.99"
_NOT_A_MODEL = Refusal("{value} is not the name of a model", "wordllama, for example", quoted_characters=80)


def bad_trial(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_trial", hint=hint)


def _whole(name: str, low: int, high: int) -> Refusal:
    return Refusal(f"`{name}` is a whole number from {low:,} to {high:,}", "and not {value}")


def _seconds(name: str) -> Refusal:
    return Refusal(f"`{name}` is a number of seconds from 1 to 86,400", "and not {value}")


def _names(name: str) -> Refusal:
    return Refusal(f"`{name}` is a list of names", f'"{name}": ["…"]')


class EvalQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One of an eval set: a text or a vector, and the documents that should be found, where somebody knows."""

    text: str | None = None
    vector: tuple[float, ...] | None = None
    expected: tuple[str, ...] = ()


class TrialRequest(JobRequest, frozen=True, kw_only=True, omit_defaults=True):
    """Index kinds, grids and rules are checked by `serving.trials`, which knows the indexes."""

    words: ClassVar[RequestWords] = RequestWords(
        noun="a trial",
        code="bad_trial",
        shape="a trial is an object with `table`",
        example='{"table": "notes", "kinds": ["pq", "hnsw"]}',
    )

    table: str
    profile: (
        Annotated[str, Refusal("`profile` is the name of one, and not for `models`", "frazil profiles list")] | None
    ) = None
    model: Annotated[str, Meta(pattern="^" + MODEL_NAME.pattern), _NOT_A_MODEL] | None = None
    """None: that of the profile, or of the table."""
    models: Annotated[tuple[str, ...], _names("models")] = ()
    """Compare these models instead of indexes."""
    kinds: Annotated[tuple[str, ...], _names("kinds")] = ()
    """Empty: all."""
    grid: Any = None
    """None: by the size of the data."""
    search: Annotated[int, Meta(ge=0, le=MAX_TRIALS), _whole("search", 0, MAX_TRIALS)] = 0
    """Instead of a grid so many trials, half of them at random, half near the best."""
    seed: Annotated[int, Meta(ge=0, le=1 << 31), _whole("seed", 0, 1 << 31)] = 0
    k: Annotated[int, Meta(ge=1, le=1000), _whole("k", 1, 1000)] = 10
    queries: Annotated[int, Meta(ge=10, le=MAX_QUERIES), _whole("queries", 10, MAX_QUERIES)] = 200
    """How many are made from the data, where none are given."""
    eval_set: tuple[EvalQuestion, ...] = ()
    max_vectors: Annotated[int, Meta(ge=1000, le=10_000_000), _whole("max_vectors", 1000, 10_000_000)] = 100_000
    """Of more than these a sample is tried."""
    rule: Annotated[str, Refusal("`rule` is a sentence", _DEFAULT_RULE)] = _DEFAULT_RULE
    limit_seconds: Annotated[float, Meta(ge=1, le=86_400), _seconds("limit_seconds")] = 1800.0
    trial_seconds: Annotated[float, Meta(ge=1, le=86_400), _seconds("trial_seconds")] = 300.0

    @classmethod
    def parse(cls, body: object) -> Self:
        """A question of the eval set may be just its text."""
        if isinstance(body, dict) and isinstance(body.get("table"), str) and body.get("eval_set") is not None:
            body = {**body, "eval_set": _eval_set(body["eval_set"])}
        return super().parse(body)

    def __post_init__(self) -> None:
        models = self.models
        if len(models) == 1 or len(set(models)) < len(models):
            raise bad_trial("`models` compares two or more models", '["wordllama", "minilm"]')
        for name in models:
            if not MODEL_NAME.match(name):
                raise _NOT_A_MODEL.error(name, "bad_trial")
        if self.grid is not None and (self.search or self.kinds):
            raise bad_trial("a grid says all that is tried", "leave out `search` and `kinds`")
        if models and (self.grid is not None or self.search or self.kinds or self.model is not None):
            raise bad_trial("`models` compares models, not indexes", "leave out `grid`, `search`, `kinds` and `model`")
        if models and self.profile is not None:
            raise bad_trial("`profile` is the name of one, and not for `models`", "frazil profiles list")
        force_setattr(self, "table", table_name(self.table))


def _eval_set(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_QUERIES:
        raise bad_trial(f"`eval_set` is a list of 1 to {MAX_QUERIES:,} queries", '["how to skate", {"vector": […]}]')
    if len(msgspec.json.encode(value)) > MAX_EVAL_BYTES:
        raise TooLarge(f"an eval set has at most {MAX_EVAL_BYTES >> 20} MB", hint="give fewer queries, or texts")
    return [_question(number, one) for number, one in enumerate(value)]


def _question(number: int, value: Any) -> dict[str, Any]:
    fields = {"text": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise bad_trial(f"query {number} is neither a text nor an object", '{"text": "…", "expected": ["id"]}')
    for name in fields:
        if name not in ("text", "vector", "expected"):
            raise bad_trial(f"query {number} has a field {str(name)[:40]!r}", "its fields are text, vector, expected")
    text, vector, expected = fields.get("text"), fields.get("vector"), fields.get("expected") or ()
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
    return {"text": text, "vector": None if vector is None else list(map(float, vector)), "expected": list(expected)}


def _finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
