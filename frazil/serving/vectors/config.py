"""Configuration of a vector index, kind and parameters: a value that trials vary, artifacts record and JSON carries.

The rules of `default_config` were measured on 100,000 vectors of 768 and of 256 dimensions, both from real sentences:

- `flat` compares with every vector: a millisecond for each four million numbers from memory, six from the cache.
- `pq` reads codes of 4 bits and compares the best hundred or two exactly. Two dimensions to a code find 0.9995 of the
  true ten, a millisecond for each 75 million numbers. With 768 dimensions, four to a code still find 0.9985, in half
  the time, and the build takes 2.0 s of a core instead of 3.7; with 256 they find 0.997 and save little.
- `ivf` reads only the nearest lists, and is never the default: sentences do not lie in lists. Of 1265 lists it must
  read a fifth to find 0.978 of the true ten, in the time in which `pq` finds 0.9995, and its build takes twelve times
  as long [100,000 × 256]. It is for trials, with vectors that cluster, or so many that less will do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import InvalidInput

# Where reading everything and reading codes take the same: 0.19 and 0.15 ms [7,800 × 256].
FLAT_NUMBERS = 2_000_000
# From here on, codes of four dimensions are enough.
COARSE_DIMS = 512


@dataclass(frozen=True)
class _Range:
    default: int
    low: int
    high: int
    meaning: str


_SUB_DIMS = _Range(2, 1, 16, "dimensions that share one 4-bit code")
_CANDIDATES = _Range(100, 10, 100_000, "how many of the best by code are compared exactly, at least")
PARAMETERS: Mapping[str, Mapping[str, _Range]] = {
    "flat": {},
    "pq": {"sub_dims": _SUB_DIMS, "candidates": _CANDIDATES},
    "ivf": {
        "lists": _Range(0, 0, 1 << 20, "how many lists; 0 means four times the square root of the rows"),
        "probes": _Range(128, 1, 1 << 20, "how many lists a query reads"),
        "sub_dims": _SUB_DIMS,
        "candidates": _CANDIDATES,
    },
    "hnsw": {
        "links": _Range(32, 4, 128, "neighbours of a vector in the graph"),
        "build_width": _Range(100, 8, 2000, "how many neighbours are considered when a vector is added"),
        "search_width": _Range(128, 8, 100_000, "how many are kept in sight while searching"),
    },
}
KINDS = tuple(PARAMETERS)
SEARCHED_WITH = frozenset({"candidates", "probes", "search_width"})
"""Parameters of the search alone: indexes that differ only in these have the same codes."""


@dataclass(frozen=True)
class IndexConfig:
    """A kind of index and all its parameters; those not given have their defaults."""

    kind: str
    params: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in PARAMETERS:
            raise _wrong(f"there is no index kind {self.kind!r}", f"the kinds are {', '.join(KINDS)}")
        known = PARAMETERS[self.kind]
        for name, value in self.params.items():
            if name not in known:
                names = ", ".join(known) or "none"
                raise _wrong(f"an index of kind {self.kind!r} has no parameter {name!r}", f"its parameters: {names}")
            limits = known[name]
            if not isinstance(value, int) or isinstance(value, bool) or not limits.low <= value <= limits.high:
                raise _wrong(
                    f"{name} = {value!r} of the index is not a whole number from {limits.low} to {limits.high}",
                    f"{name}: {limits.meaning}; {limits.default} unless given",
                )
        whole = {name: self.params.get(name, limits.default) for name, limits in known.items()}
        object.__setattr__(self, "params", whole)

    @classmethod
    def parse(cls, given: str | bytes | Mapping[str, Any]) -> IndexConfig:
        """From `{"kind": "pq", "sub_dims": 2}` as JSON text or decoded; or just the name of a kind."""
        if isinstance(given, str | bytes):
            text = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
            if text.strip() in PARAMETERS:
                return cls(text.strip())
            try:
                given = json.loads(text)
            except (ValueError, RecursionError) as wrong:
                raise _wrong(
                    f"the index is neither a kind nor JSON: {text[:80]!r}", f"kinds: {', '.join(KINDS)}"
                ) from wrong
        if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
            raise _wrong("the index is not an object with a `kind`", 'for example {"kind": "pq", "sub_dims": 2}')
        return cls(given["kind"], {name: value for name, value in given.items() if name != "kind"})

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.params}


def default_config(rows: int, dims: int) -> IndexConfig:
    """The kind that fits so many vectors; the module tells the measurements behind it."""
    if rows * dims <= FLAT_NUMBERS:
        return IndexConfig("flat")
    return IndexConfig("pq", {"sub_dims": 4, "candidates": 200} if dims >= COARSE_DIMS else {})


def lists_for(config: IndexConfig, rows: int) -> int:
    """How many lists an `ivf` of so many rows has; k-means wants some forty vectors for each."""
    wanted = config.params["lists"] or round(4 * math.sqrt(rows))
    return max(1, min(wanted, rows // 39))


def _wrong(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_index_config", hint=hint)
