from __future__ import annotations

import math
import pickle
import re
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import add

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frazil.pipeline.sources.csv.convert import convert_column
from frazil.pipeline.sources.csv.type_inference import ColumnFacts, decide, facts_of

_LONG = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_FIXED = re.compile(r"-?(?:(0|[1-9][0-9]*)\.?|(?:0|[1-9][0-9]*)?\.[0-9]+)\Z")
_FLOAT = re.compile(r"-?(?:(0|[1-9][0-9]*)\.?|(?:0|[1-9][0-9]*)?\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


def type_of(*texts: str | None) -> str:
    return str(decide(facts_of(pa.array(texts, pa.string()))))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["123", "N/A", ""], "string"),
        (["007", "8"], "string"),
        (["0", "-1", None, ""], "long"),
        (["-0"], "long"),
        (["+1"], "string"),
        (["9223372036854775807", "-9223372036854775808"], "long"),
        (["9223372036854775808"], "decimal(38,0)"),
        (["1", "2.50"], "decimal(18,2)"),
        (["123456789012345678", "0.5"], "decimal(38,1)"),
        (["1" * 38], "decimal(38,0)"),
        (["1" * 39], "double"),
        (["1" * 30, "0." + "1" * 10], "double"),
        (["1" * 400], "string"),
        (["1e3", "2"], "double"),
        (["1e400"], "string"),
        (["01.5"], "string"),
        (["01e5"], "string"),
        (["123e-10000", "1.2e-00001"], "double"),
        (["1234-56-78"], "string"),
        (["2024-05-01", "1234567890"], "string"),
        (["1234567890", "2024-05-01"], "string"),
        (["1.2.3"], "string"),
        (["1-2"], "string"),
        (["-"], "string"),
        (["."], "string"),
        (["-.5", "5."], "decimal(18,1)"),
        (["0x1F"], "string"),
        (["NaN", "1.5"], "string"),
        (["1,5"], "string"),
        ([" 1"], "string"),
        (["true", "FALSE", "False", None], "bool"),
        (["true", "0"], "string"),
        (["yes", "no"], "string"),
        (["2024-02-29", "1999-12-31"], "date"),
        (["2023-02-29"], "string"),
        (["2024-1-1"], "string"),
        (["0000-01-01"], "string"),
        (["2024-05-01", "2024-05-01T12:00:00"], "timestamp"),
        (["2024-05-01 12:00:00", "2024-05-01T12:00:00.123456Z", "2024-05-01T12:00:00+02:00"], "timestamp"),
        (["2024-05-01T12:00:00.1234567Z"], "string"),
        (["2024-05-01T25:00:00Z"], "string"),
        (["12:30"], "string"),
        (["2024-05-01", "5"], "string"),
        (["", None], "string"),
        ([], "string"),
        (["a b", "ü"], "string"),
    ],
)
def test_types(texts: list[str | None], expected: str) -> None:
    assert type_of(*texts) == expected
    # One value too many, far behind what a sample would see.
    assert type_of(*texts, *([texts[0]] * 5000 if texts else []), "N/A") == "string"


NUMBERS = st.text("0123456789.-eE+", max_size=25)
PLAIN = (
    NUMBERS
    | st.integers().map(str)
    | st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: format(number, "f"))
    | st.floats().map(repr)
    | st.dates().map(str)
    | st.datetimes().map(datetime.isoformat)
    | st.sampled_from(["true", "False", "", "x"])
)


def naive_type(texts: list[str]) -> str:
    """The rules of the table, value by value."""
    values = [text for text in texts if text]
    if not values:
        return "string"
    if all(value.lower() in ("true", "false") for value in values):
        return "bool"
    if all(_LONG.match(value) and -(2**63) <= int(value) < 2**63 for value in values):
        return "long"
    if all(_FIXED.match(value) for value in values):
        parts = [value.lstrip("-").partition(".") for value in values]
        whole, scale = max(len(part[0]) for part in parts), max(len(part[2]) for part in parts)
        if whole + scale <= 38:
            return f"decimal({18 if whole + scale <= 18 else 38},{scale})"
    if all(_FLOAT.match(value) and math.isfinite(float(value)) for value in values):
        return "double"
    return "date or time" if all(re.match("[0-9]{4}-[0-9]{2}-[0-9]{2}", value) for value in values) else "string"


@given(st.lists(PLAIN, max_size=4))
@example(["", "-", "5"])
@example(["5", "-"])
@example(["0", "1"])
@example(["0e1"])
@example(["-0", "5.", ".5", "0.5e1"])
def test_numbers_are_told_as_value_by_value(texts: list[str]) -> None:
    expected = naive_type(texts)
    if expected != "date or time":
        assert type_of(*texts) == expected


@given(st.lists(st.lists(PLAIN | st.none(), max_size=5), max_size=5))
def test_facts_of_ranges_add_up_to_those_of_the_whole(ranges: list[list[str | None]]) -> None:
    parts = [facts_of(pa.array(texts, pa.string())) for texts in ranges]
    whole = facts_of(pa.array([text for texts in ranges for text in texts], pa.string()))
    added = reduce(add, parts, ColumnFacts())
    assert (added.values, added.nulls) == (whole.values, whole.nulls)
    assert decide(added) == decide(whole)
    assert pickle.loads(pickle.dumps(added)) == added  # noqa: S301 - our own bytes


@given(st.lists(PLAIN, max_size=6))
def test_every_value_fits_the_type_that_was_inferred(texts: list[str]) -> None:
    column = pa.array(texts, pa.string())
    wanted = decide(facts_of(column))
    converted = convert_column(column, wanted)
    assert converted.unfit is None
    for text, value in zip(texts, converted.values.to_pylist(), strict=True):
        if wanted.kind == "string":
            assert value == text
        elif not text:
            assert value is None
        elif wanted.kind in ("long", "decimal"):
            assert value == Decimal(text)
        elif wanted.kind == "double":
            assert value == float(text)


def test_a_slice_of_a_column_is_judged_by_itself() -> None:
    column = pa.array(["x", "12", "3.5", "y"])
    assert decide(facts_of(column[1:3])).kind == "decimal"
    assert facts_of(column[1:3]).values == 2
