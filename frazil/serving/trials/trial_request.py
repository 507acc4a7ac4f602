"""Trial request, checked against the indexes that there are."""

from __future__ import annotations

from msgspec.structs import replace

from frazil.requests import TrialRequest, bad_trial
from frazil.serving.trials.grid import ALL_KINDS, parse_grid
from frazil.serving.trials.rule import Rule


def parse_trial(body: object) -> TrialRequest:
    """A request from JSON, or `InvalidInput` with a hint."""
    request = TrialRequest.parse(body)
    for kind in request.kinds:
        if kind not in ALL_KINDS:
            raise bad_trial(f"there is no index kind {kind[:40]!r}", f"the kinds are {', '.join(ALL_KINDS)}")
    if request.grid is not None:
        parse_grid(request.grid)
    return replace(request, rule=str(Rule.parse(request.rule)))
