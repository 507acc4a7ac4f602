"""Event equality: whether two events with one id have the same content."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Mask = npt.NDArray[np.bool_]

_IGNORED = ("_seq", "_received_at", "_ts")


def differing_rows(first: pa.Table, second: pa.Table) -> list[int]:
    """The rows in which the two tables differ, compared row by row; both have the same number of rows.

    Null equals null and NaN equals NaN. A column that only one of them has counts as null in the other. An int is
    compared to a long as a long; a float to a double as a float, which is how it was kept. When an event was received
    does not count, nor does its `_ts` where both events left it to the time of receipt.
    """
    if first.num_rows != second.num_rows:
        raise ValueError(f"{first.num_rows} rows cannot be compared to {second.num_rows}")
    names = dict.fromkeys([*first.column_names, *second.column_names])
    differs = np.zeros(first.num_rows, dtype=bool)
    for name in names:
        if name not in _IGNORED:
            differs |= ~_equal(_column(first, name), _column(second, name))
    if "_ts" in names:
        both_defaulted = _defaulted(first) & _defaulted(second)
        differs |= ~(both_defaulted | _equal(_column(first, "_ts"), _column(second, "_ts")))
    found: list[int] = np.flatnonzero(differs).tolist()
    return found


def _column(table: pa.Table, name: str) -> pa.Array:
    at = table.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(table.num_rows)
    column = table.column(at)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _defaulted(table: pa.Table) -> Mask:
    return _true(pc.equal(_column(table, "_ts"), _column(table, "_received_at")))


def _equal(first: pa.Array, second: pa.Array) -> Mask:
    if pt.is_null(first.type) or pt.is_null(second.type):
        return _true(pc.and_(first.is_null(), second.is_null()))
    if pt.is_nested(first.type) or pt.is_nested(second.type):
        pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
        return np.fromiter((_same(a, b) for a, b in pairs), dtype=bool, count=len(first))
    if pt.is_float32(first.type) != pt.is_float32(second.type):
        # The column became a double in between: what was sent again is rounded again, as it was the first time.
        first, second = pc.cast(first, pa.float32(), safe=False), pc.cast(second, pa.float32(), safe=False)
    equal = pc.equal(first, second)
    both_null = pc.and_(first.is_null(), second.is_null())
    same = _true(equal) | _true(both_null)
    if pt.is_floating(first.type) and pt.is_floating(second.type):
        same |= _true(pc.and_(pc.is_nan(first), pc.is_nan(second)))
    return same


def _true(mask: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(mask, False), dtype=bool)


def _same(first: Any, second: Any) -> bool:
    if first is None or second is None:
        # PyIceberg reads a null list of structs back as an empty one; refusing an honest retry would be worse than
        # taking the two for the same.
        return all(value is None or value == [] for value in (first, second))
    if isinstance(first, float) and isinstance(second, float):
        return first == second or (math.isnan(first) and math.isnan(second))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        # A field that only one of them knows is null in the other.
        return all(_same(first.get(name), second.get(name)) for name in first.keys() | second.keys())
    return bool(first == second)
