"""Grid of a trial: indexes of all kinds with their parameters, from a grid, or drawn at random and then near the best.

`vss` is DuckDB's own HNSW index, here to compare with: an artifact may have one in its database file, but searches do
not use it, so that no trial of it is ever promoted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frazil.requests import MAX_TRIALS, bad_trial
from frazil.serving.vectors.config import KINDS, SEARCHED_WITH, IndexConfig, default_config

VSS = "vss"
ALL_KINDS = (*KINDS, VSS)
_VSS_PARAMETERS = {"links": (16, 2, 128), "build_width": (128, 8, 2000), "search_width": (64, 8, 100_000)}
# From here on a graph takes minutes to build: 53 s by faiss and 143 s by DuckDB [100,000 × 768].
_SLOW_NUMBERS = 30_000_000


@dataclass(frozen=True)
class TrialConfig:
    """A kind of index and all its parameters."""

    kind: str
    params: Mapping[str, int] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, index: IndexConfig) -> TrialConfig:
        return cls(index.kind, dict(index.params))

    @classmethod
    def parse(cls, given: Any) -> TrialConfig:
        """From `{"kind": "pq", "sub_dims": 2}`, or just the name of a kind."""
        if given == VSS:
            given = {"kind": VSS}
        if isinstance(given, Mapping) and given.get("kind") == VSS:
            return cls(VSS, _vss_params({name: value for name, value in given.items() if name != "kind"}))
        if not isinstance(given, str | Mapping):
            raise bad_trial("a trial is a kind or an object with `kind`", '{"kind": "pq", "sub_dims": 2}')
        return cls.of(IndexConfig.parse(given))

    @property
    def index(self) -> IndexConfig:
        """As an artifact is built with it; not for `vss`."""
        return IndexConfig(self.kind, self.params)

    @property
    def built_with(self) -> str:
        """Equal for those that one build serves."""
        return json.dumps({name: value for name, value in self.as_json().items() if name not in SEARCHED_WITH})

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.params}

    def text(self) -> str:
        return json.dumps(self.as_json())


def _vss_params(given: Mapping[str, Any]) -> dict[str, int]:
    for name, value in given.items():
        if name not in _VSS_PARAMETERS:
            raise bad_trial(f"vss has no parameter {str(name)[:40]!r}", f"it has {', '.join(_VSS_PARAMETERS)}")
        _, low, high = _VSS_PARAMETERS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise bad_trial(f"{name} of vss is a whole number from {low} to {high}", f"and not {str(value)[:40]!r}")
    return {name: given.get(name, default) for name, (default, _, _) in _VSS_PARAMETERS.items()}


def default_grid(rows: int, dims: int, kinds: Sequence[str] = ALL_KINDS) -> list[TrialConfig]:
    """What is worth trying on so many vectors; the default for them is the first."""
    wide = [100, 200] if dims >= 128 else [50, 100]
    params_by_kind: dict[str, list[dict[str, int]]] = {
        "flat": [{}],
        "pq": [{"sub_dims": sub, "candidates": some} for sub in (2, 4) for some in wide],
        "ivf": [{"probes": probes} for probes in (16, 64, 128)],
        "hnsw": [{"search_width": width} for width in (64, 128, 256)],
        VSS: [{"search_width": width} for width in (64, 256)],
    }
    if rows * dims > _SLOW_NUMBERS:
        params_by_kind["hnsw"] = params_by_kind["hnsw"][1:2]
        params_by_kind[VSS] = params_by_kind[VSS][:1]
    found = [TrialConfig.parse({"kind": kind, **params}) for kind in kinds for params in params_by_kind[kind]]
    first = TrialConfig.of(default_config(rows, dims))
    return [first, *(config for config in found if config != first)] if first.kind in kinds else found


def parse_grid(given: Any) -> list[TrialConfig]:
    """From a list of trials, in which a parameter may be a list of values: every combination is one.

    `[{"kind": "pq", "sub_dims": [2, 4], "candidates": [50, 100]}, "flat"]` are five.
    """
    if not isinstance(given, list | tuple) or not given:
        raise bad_trial("a grid is a list of trials", '[{"kind": "pq", "sub_dims": [2, 4]}, "flat"]')
    found: dict[str, TrialConfig] = {}
    for entry in given:
        for one in _combinations(entry):
            config = TrialConfig.parse(one)
            found[config.text()] = config
            if len(found) > MAX_TRIALS:
                raise bad_trial(f"a grid has at most {MAX_TRIALS} trials", "try fewer values at once")
    return list(found.values())


def _combinations(entry: Any) -> list[Any]:
    if not isinstance(entry, Mapping):
        return [entry]
    found: list[dict[str, Any]] = [{}]
    for name, value in entry.items():
        values = value if isinstance(value, list | tuple) else [value]
        if not values or len(found) * len(values) > MAX_TRIALS:
            raise bad_trial(f"`{str(name)[:40]}` has no values, or too many", f"a grid has at most {MAX_TRIALS} trials")
        found = [{**one, name: some} for one in found for some in values]
    return found


# What is drawn from: values, or a range of which every factor is as likely.
_DRAWN: Mapping[str, Mapping[str, tuple[int, int] | list[int]]] = {
    "flat": {},
    "pq": {"sub_dims": [1, 2, 4, 8], "candidates": (10, 800)},
    "ivf": {"lists": (16, 4096), "probes": (4, 512), "sub_dims": [2, 4], "candidates": (20, 400)},
    "hnsw": {"links": [16, 24, 32, 48, 64], "build_width": (40, 400), "search_width": (8, 512)},
    VSS: {"links": [16, 24, 32], "build_width": (40, 400), "search_width": (8, 512)},
}
_DRAWS = 50


def drawn(seed: int, number: int, kinds: Sequence[str], tried: Sequence[TrialConfig]) -> TrialConfig | None:
    """A trial at random that was not tried; None if there seems to be none. Equal for equal arguments."""
    random = np.random.default_rng([seed, number])
    for _ in range(_DRAWS):
        kind = kinds[int(random.integers(len(kinds)))]
        params = {name: _one_of(random, values) for name, values in _DRAWN[kind].items()}
        config = TrialConfig.parse({"kind": kind, **params})
        if config not in tried:
            return config
    return None


def near(seed: int, number: int, best: TrialConfig, tried: Sequence[TrialConfig]) -> TrialConfig | None:
    """One that differs little from the best so far: each parameter by at most a factor of two."""
    random = np.random.default_rng([seed, number])
    for _ in range(_DRAWS):
        params = dict(best.params)
        for name, values in _DRAWN[best.kind].items():
            if isinstance(values, list):
                at = min(range(len(values)), key=lambda index: abs(values[index] - best.params[name]))
                at += int(random.integers(-1, 2))
                params[name] = values[min(max(at, 0), len(values) - 1)]
            elif best.params[name]:
                value = round(best.params[name] * 2 ** float(random.uniform(-1, 1)))
                params[name] = min(max(value, values[0]), values[1])
        config = TrialConfig.parse({"kind": best.kind, **params})
        if config not in tried:
            return config
    return None


def _one_of(random: np.random.Generator, values: tuple[int, int] | list[int]) -> int:
    if isinstance(values, list):
        return values[int(random.integers(len(values)))]
    return round(float(np.exp(random.uniform(np.log(values[0]), np.log(values[1])))))
