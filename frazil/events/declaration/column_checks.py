"""Column checks: rules for the values of a column beside its type, declared with a table.

`{"not_null": true, "range": {"min": 0, "max": 100}, "one_of": ["a", "b"], "pattern": "[A-Z]{3}", "unique": true}`

Each is left out or given. A null passes every check but `not_null`. Limits of a range belong to it. A pattern is a
regular expression (RE2) for the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import InvalidInput
from frazil.events.declaration.column_types import ColumnType
from frazil.events.decoding.json_text import Number, Wrong
from frazil.events.decoding.json_values import converter

_ORDERED = ("int", "long", "float", "double", "decimal", "date", "timestamp")
_NUMBERS = ("int", "long", "float", "double", "decimal")
_LISTED = (*_ORDERED, "string", "bool")
MAX_LISTED = 10_000
MAX_PATTERN = 1000

Limit = int | float | str
"""A value as it is declared: a number, or the text of a decimal, a date or a timestamp."""


@dataclass(frozen=True)
class Checks:
    """The checks of one column, as declared and found valid for its type."""

    not_null: bool = False
    min: Limit | None = None
    max: Limit | None = None
    one_of: tuple[Limit, ...] = ()
    pattern: str | None = None
    unique: bool = False

    def __bool__(self) -> bool:
        return self != NO_CHECKS

    def declared(self) -> dict[str, Any]:
        """The JSON that declares these checks; `parse_checks` of it gives them again."""
        limits = {name: limit for name, limit in (("min", self.min), ("max", self.max)) if limit is not None}
        found: dict[str, Any] = {
            "not_null": self.not_null,
            "range": limits,
            "one_of": list(self.one_of),
            "pattern": self.pattern,
            "unique": self.unique,
        }
        return {name: value for name, value in found.items() if value}


NO_CHECKS = Checks()


def parse_checks(declared: Mapping[str, Any], column: str, of_type: ColumnType) -> Checks:
    """Checks from the JSON that declares them, or `InvalidInput` that names the column and what would be right."""
    low, high = _range(declared.get("range"), column, of_type)
    return Checks(
        not_null=declared.get("not_null", False),
        min=low,
        max=high,
        one_of=_one_of(declared.get("one_of"), column, of_type),
        pattern=_pattern(declared.get("pattern"), column, of_type),
        unique=_unique(declared, column, of_type),
    )


def check_value(limit: Limit, of_type: ColumnType) -> pa.Scalar:
    """A declared value as one of the column's type, to compare with. Raises `Wrong` if it is none."""
    is_number = of_type.kind in _NUMBERS and not isinstance(limit, bool)
    given = Number(limit) if is_number and isinstance(limit, int | float) else limit
    return pa.scalar(converter(of_type)(given), of_type.arrow)


def _range(declared: Any, column: str, of_type: ColumnType) -> tuple[Limit | None, Limit | None]:
    if declared is None:
        return None, None
    if of_type.kind not in _ORDERED:
        raise _bad(column, f"a {of_type} column cannot have a range", "use range for numbers, dates and timestamps")
    low, high = (_limit(declared.get(name), column, of_type) for name in ("min", "max"))
    if low is None and high is None:
        raise _bad(column, "a range has `min`, `max` or both", 'for example {"range": {"min": 0}}')
    if low is not None and high is not None:
        ordered = pc.less_equal(check_value(low, of_type), check_value(high, of_type)).as_py()
        if not ordered:
            raise _bad(column, f"`min` {low} of the range is greater than `max` {high}", "swap `min` and `max`")
    return low, high


def _one_of(declared: Any, column: str, of_type: ColumnType) -> tuple[Limit, ...]:
    if declared is None:
        return ()
    if of_type.kind not in _LISTED:
        raise _bad(column, f"a {of_type} column cannot have one_of", "use one_of for types that are not nested")
    found = tuple(_limit(value, column, of_type) for value in declared)
    if None in found:
        raise _bad(column, "one_of contains null", "remove null; it is always allowed unless not_null is declared")
    return tuple(value for value in found if value is not None)


def _limit(value: Limit | Decimal | None, column: str, of_type: ColumnType) -> Limit | None:
    if value is None:
        return None
    value = str(value) if isinstance(value, Decimal) else value
    try:
        compared = check_value(value, of_type)
    except Wrong as wrong:
        raise _bad(column, wrong.reason, f"use a value of the type {of_type}") from None
    if compared.as_py() != compared.as_py():
        raise _bad(column, "NaN is not allowed in a check", f"use another value of the type {of_type}")
    return value


def _pattern(declared: str | None, column: str, of_type: ColumnType) -> str | None:
    if declared is None:
        return None
    if of_type.kind != "string":
        raise _bad(column, f"a {of_type} column cannot have a pattern", "use pattern for string columns")
    try:
        # By itself too: `a)|(b` can be read only between the brackets that make it match as a whole.
        for expression in (declared, whole_match(declared)):
            pc.match_substring_regex(pa.array([""]), expression)
    except pa.ArrowInvalid as error:
        raise _bad(column, f"the pattern {declared[:80]!r} is not valid ({error})", "use the syntax of RE2") from None
    return declared


def whole_match(pattern: str) -> str:
    """The expression that finds only whole texts of the pattern."""
    return rf"\A(?:{pattern})\z"


def _unique(declared: Mapping[str, Any], column: str, of_type: ColumnType) -> bool:
    unique: bool = declared.get("unique", False)
    if unique and of_type.kind not in _LISTED:
        raise _bad(column, f"a {of_type} column cannot be unique", "use unique for types that are not nested")
    return unique


def _bad(column: str, message: str, hint: str) -> InvalidInput:
    return InvalidInput(f"checks of {column!r}: {message}", code="bad_check", hint=hint)
