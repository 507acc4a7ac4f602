"""The type of an undeclared column, from the JSON values of one batch.

bool, long, double and string for values that are all of that kind; json for objects, lists and mixtures. Whole numbers
next to fractions make a double only where the double holds each of them exactly, json otherwise. A number beyond long
is refused, because a guess (decimal, json) would bind the column for good: its owner declares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.events.declaration.column_types import ColumnType
from frazil.events.declaration.table_spec import Column
from frazil.events.decoding.json_text import Number, Wrong
from frazil.events.decoding.json_values import converter, to_double, to_long
from frazil.events.decoding.limits import Problems

_EXACT_IN_DOUBLE = 1 << 53


def new_columns(
    unknown: Mapping[str, Mapping[int, Any]], problems: Problems
) -> tuple[dict[str, Column], dict[str, dict[int, Any]]]:
    """For each new field its column, and the values as that column stores them, by the index of their event."""
    added: dict[str, Column] = {}
    values: dict[str, dict[int, Any]] = {}
    for name, given in unknown.items():
        kind = _kind(list(given.values()))
        convert = converter(ColumnType(kind))
        found: dict[int, Any] = {}
        for index, value in given.items():
            try:
                found[index] = convert(value)
            except Wrong as wrong:
                reason = wrong.reason
                if kind == "long" and "out of range" in reason:
                    reason += "; declare the column as decimal(38,0) or string first"
                problems.add(index, f"data.{name}{wrong.path}", reason)
        added[name] = Column(ColumnType(kind))
        values[name] = found
    return added, values


def _kind(values: list[Any]) -> str:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "bool"
    if kinds == {str}:
        return "string"
    if kinds != {Number}:
        return "json"
    wholes = [value for value in values if not set(value) & set(".eE")]
    if len(wholes) == len(values):
        return "long"
    return "double" if all(_exact(value) for value in wholes) else "json"


def _exact(whole: Number) -> bool:
    try:
        number = to_long(whole)
    except Wrong:
        return False
    return abs(number) <= _EXACT_IN_DOUBLE or int(to_double(whole)) == number
