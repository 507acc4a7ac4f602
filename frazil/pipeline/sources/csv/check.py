"""Column checks of a CSV load: the values that fail a check, and the reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration import Checks, ColumnType, check_value, whole_match
from frazil.pipeline.sources.csv.record_boundaries import Mask


def failures(values: pa.Array, of_type: ColumnType, checks: Checks) -> Iterator[tuple[Mask, str]]:
    """For each check that any value fails: which ones, and the reason. `unique` is not looked at: it is a matter of all
    ranges together."""
    if checks.not_null and values.null_count:
        yield np.asarray(values.is_null()), "is missing, and the column must not be null"
    if of_type.kind in ("float", "double") and (checks.min is not None or checks.max is not None):
        yield from _where(pc.is_nan(values), "is in no range")
    for limit, compare, words in (
        (checks.min, pc.less, "is below the minimum of"),
        (checks.max, pc.greater, "is above the maximum of"),
    ):
        if limit is not None:
            yield from _where(compare(values, check_value(limit, of_type)), f"{words} {limit}")
    if checks.one_of:
        listed = pa.array([check_value(value, of_type).as_py() for value in checks.one_of], of_type.arrow)
        known = pc.or_(pc.is_in(values, listed), values.is_null())
        yield from _where(pc.invert(known), "is not one of the declared values")
    if checks.pattern is not None:
        matching = pc.match_substring_regex(values, whole_match(checks.pattern))
        yield from _where(pc.invert(matching), f"does not match the pattern {checks.pattern}")


def _where(failed: pa.BooleanArray, reason: str) -> Iterator[tuple[Mask, str]]:
    mask: Mask = np.asarray(failed.fill_null(False))
    if mask.any():
        yield mask, reason
