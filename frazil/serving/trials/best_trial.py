"""Best trial of a table under a rule, and its promotion: the next build of the shelf takes its index."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from frazil.errors import InvalidInput
from frazil.lake.catalog import Lake
from frazil.lake.derived import read_trials
from frazil.requests import bad_trial
from frazil.serving.index_choice import choose_index, chosen_index, forget_index
from frazil.serving.settings import SearchSettings
from frazil.serving.trials.dataset import now_of
from frazil.serving.trials.handler import shelf_and_model
from frazil.serving.trials.rule import Rule, best
from frazil.serving.trials.trial_rows import trial_json

_FIELDS = ("rule", "recall", "by", "k", "profile", "model", "promote")


@dataclass(frozen=True)
class BestTrialRequest:
    rule: Rule
    k: int | None = None
    """None: that of the newest trial."""
    profile: str | None = None
    model: str | None = None
    promote: bool = False


def parse_best(body: Any) -> BestTrialRequest:
    """From JSON: the rule as a sentence, or as `recall` and `by`."""
    if not isinstance(body, dict):
        raise bad_trial("it is an object", '{"recall": 0.99, "by": "latency", "promote": true}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise InvalidInput(f"there is no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    given = {name: value for name, value in body.items() if value is not None}
    for name in ("rule", "by", "profile", "model"):
        if not isinstance(given.get(name, ""), str):
            raise bad_trial(f"`{name}` is a text", "leave it out for the usual")
    k = given.get("k")
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= 1000):
        raise bad_trial("`k` is a whole number from 1 to 1,000", "leave it out for that of the newest trial")
    if not isinstance(given.get("promote", False), bool):
        raise bad_trial("`promote` is true or false", '"promote": true')
    if "rule" in given and ("recall" in given or "by" in given):
        raise bad_trial("the rule is given twice", "either `rule`, or `recall` and `by`")
    rule = (
        Rule.parse(given["rule"])
        if "rule" in given
        else Rule(given.get("recall", Rule.recall), given.get("by", Rule.by))
    )
    return BestTrialRequest(rule, k, given.get("profile"), given.get("model"), given.get("promote", False))


def find_best(
    lake: Lake, name: str, request: BestTrialRequest, settings: SearchSettings | None = None
) -> dict[str, Any]:
    """The winner as JSON; with `promote` it is the shelf's index from its next build on."""
    table = lake.table(name)
    shelf, model = shelf_and_model(lake, table, request.profile, request.model, settings or SearchSettings())
    won = best(read_trials(lake, name), request.rule, now_of(lake, table, shelf, model), request.k)
    if request.promote:
        choose_index(lake.registry, shelf.table, model, won.config.index, won.because)
    chosen = chosen_index(lake.registry, shelf.table, model)
    return {
        "table": table.spec.short_name,
        "shelf": shelf.table,
        "model": model,
        "rule": str(request.rule),
        "config": won.config.as_json(),
        "because": won.because,
        "considered": won.considered,
        "trial": trial_json(won.trial),
        "promoted": request.promote,
        "chosen": None if chosen is None else msgspec.to_builtins(chosen),
    }


def forget(lake: Lake, name: str, *, profile: str | None = None, model: str | None = None) -> dict[str, Any]:
    """Back to the default, which follows the size of the data, from the next build on."""
    table = lake.table(name)
    shelf, model = shelf_and_model(lake, table, profile, model, SearchSettings())
    before = chosen_index(lake.registry, shelf.table, model)
    forget_index(lake.registry, shelf.table, model)
    return {
        "table": table.spec.short_name,
        "shelf": shelf.table,
        "model": model,
        "forgotten": None if before is None else before.config,
    }
