"""Each kind of column keeps exactly what was sent, or says why it cannot."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadEvents
from tests.events.bodies import decode, decode_one, table

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("declared", "sent", "kept"),
    [
        ("long", "9007199254740993", 2**53 + 1),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "922337203685477580.7e1", 2**63 - 1),
        ("int", "2147483647", 2**31 - 1),
        ("int", "1.0", 1),
        ("int", "1e3", 1000),
        ("int", "-0", 0),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(38,10)", '"0.0000000001"', Decimal("0.0000000001")),
        ("decimal(6,2)", "1.50000", Decimal("1.50")),
        ("decimal(6,2)", "1e3", Decimal(1000)),
        ("decimal(6,2)", "0e99999999999999999999", Decimal(0)),
        ("double", "5e-324", 5e-324),
        ("double", "1e-400", 0.0),
        ("double", '"Infinity"', math.inf),
        ("float", "16777217", 16777216.0),
        ("string", '"\\u0000"', "\0"),
        ("string", '"\\ud83d\\ude00"', "😀"),
        ("bool", "true", True),
        ("date", '"0001-01-01"', date(1, 1, 1)),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("binary", '"AP8="', b"\x00\xff"),
        ("timestamp", '"2024-05-01T12:00:00+02:00"', datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("timestamp", '"2024-05-01t12:00:00.1z"', datetime(2024, 5, 1, 12, 0, 0, 100000, tzinfo=UTC)),
        ("timestamp", '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (
            "json",
            ' { "a" : [ 1.10 , 1e400, 123456789012345678901234567890 ] } ',
            '{"a":[1.10,1e400,123456789012345678901234567890]}',
        ),
        ("json", '"x"', '"x"'),
        ("json", "null", None),
        ("list<long>", "[1,null,3]", [1, None, 3]),
        ("struct<x:int,y:string>", '{"x":1}', {"x": 1, "y": None}),
        ("map<string,double>", '{"a":1,"b":null}', [("a", 1.0), ("b", None)]),
        ("map<long,date>", '{"-5":"2024-05-01"}', [(-5, date(2024, 5, 1))]),
        ("list<struct<at:timestamp>>", '[{"at":"1970-01-01T00:00:00Z"}]', [{"at": datetime(1970, 1, 1, tzinfo=UTC)}]),
    ],
)
def test_kept_exactly(declared: str, sent: str, kept: Any) -> None:
    assert decode_one(sent, declared) == kept


@pytest.mark.parametrize(
    ("declared", "sent", "reason"),
    [
        ("long", "9223372036854775808", "-9223372036854775808 to 9223372036854775807"),
        ("int", "2147483648", "-2147483648 to 2147483647"),
        ("long", "1e999999999999", "out of range"),
        ("long", "1.5", "not a whole number"),
        ("long", "1e-999999999999", "not a whole number"),
        ("long", '"1"', "expected a whole number"),
        ("long", "true", "got true"),
        ("long", "NaN", "NaN is not JSON"),
        ("decimal(6,2)", "1.005", "3 digits after the point"),
        ("decimal(6,2)", "12345", "5 digits before the point"),
        ("decimal(6,2)", '"NaN"', "expected a number"),
        ("decimal(6,2)", '"1_0"', "expected a number"),
        ("decimal(6,2)", '"."', "expected a number"),
        ("decimal(6,2)", '"٣"', "expected a number"),
        ("decimal(38,0)", "1e38", "39 digits"),
        ("double", "1e400", "out of range"),
        ("double", '"nan"', "expected a number"),
        ("double", "Infinity", "not JSON"),
        ("float", "1e39", "3.4028235e38"),
        ("string", "1", "expected a text"),
        ("string", '"\\ud800"', "surrogate"),
        ("bool", "1", "expected true or false"),
        ("bool", '"true"', "expected true or false"),
        ("date", '"2024-02-30"', "not a valid date"),
        ("date", '"2024-2-3"', "2024-05-01"),
        ("date", '"0000-01-01"', "not a valid date"),
        ("date", "19000", "expected a date"),
        ("binary", '"AP8"', "base64"),
        ("binary", '"A P8="', "base64"),
        ("binary", '"é"', "base64"),
        ("timestamp", '"2024-05-01T12:00:00"', "add Z for UTC"),
        ("timestamp", '"2024-05-01T12:00:00.1234567Z"', "can have 6"),
        ("timestamp", '"2024-05-01T24:00:00Z"', "not a valid time"),
        ("timestamp", '"2024-05-01T23:59:60Z"', "not a valid time"),
        ("timestamp", '"2024-05-01T00:00:00+24:00"', "offset"),
        ("timestamp", '"2024-05-01"', "RFC 3339"),
        ("timestamp", '"0001-01-01T00:00:00+00:01"', "years 1 to 9999"),
        ("timestamp", "1714564800", "expected a timestamp"),
        ("json", '{"a":{"b":1,"b":2}}', "twice"),
        ("json", '{"a":"\\udfff"}', "surrogate"),
        ("json", "[NaN]", "not JSON"),
        ("list<int>", "{}", "expected a list"),
        ("struct<x:int>", '{"x":1,"x":1}', "twice"),
        ("struct<price:int>", '{"prise":1}', "did you mean 'price'"),
        ("map<long,int>", '{"1":1,"01":2}', "not a whole number"),
        ("map<timestamp,int>", '{"2024-05-01T00:00:00Z":1,"2024-05-01T01:00:00+01:00":2}', "twice"),
        ("map<string,int>", "[]", "expected an object"),
    ],
)
def test_refused_with_the_reason(declared: str, sent: str, reason: str) -> None:
    with pytest.raises(BadEvents) as caught:
        decode_one(sent, declared)
    (detail,) = caught.value.details
    assert detail["index"] == 0
    assert detail["field"].startswith("data.a")
    assert reason in detail["reason"]


def test_the_path_leads_to_the_value() -> None:
    spec = table({"items": "list<struct<price:decimal(6,2),by:map<string,list<int>>>>"})
    body = b'{"data":{"items":[null,{"price":1},{"by":{"x":[1,"2"]}}]}}'
    with pytest.raises(BadEvents) as caught:
        decode(body, spec)
    assert caught.value.details[0]["field"] == "data.items[2].by['x'][1]"


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs(number: int) -> None:
    assert decode_one(str(number), "long") == number


@given(st.integers())
def test_ints_are_in_range_or_refused(number: int) -> None:
    if -(2**31) <= number < 2**31:
        assert decode_one(str(number), "int") == number
    else:
        with pytest.raises(BadEvents, match="out of range"):
            decode_one(str(number), "int")


@given(st.floats())
def test_doubles(number: float) -> None:
    sent = (
        repr(number)
        if math.isfinite(number)
        else json.dumps(str(number).title().replace("Inf", "Infinity").replace("Nan", "NaN"))
    )
    assert struct.pack("d", decode_one(sent, "double")) == struct.pack("d", number) or math.isnan(number)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats(number: float) -> None:
    assert struct.pack("f", decode_one(repr(number), "float")) == struct.pack("f", number)


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28), st.booleans()
)
def test_decimals_as_numbers_and_as_text(number: Decimal, as_text: bool) -> None:
    sent = format(number, "f") if not as_text else json.dumps(str(number))
    assert decode_one(sent, "decimal(38,9)") == number


@given(st.integers(-(10**40), 10**40), st.integers(-45, 45), st.integers(1, 38), st.integers(0, 38))
def test_decimals_are_exact_or_refused(digits: int, exponent: int, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    sent = f"{digits}e{exponent}"
    unscaled = Fraction(digits) * Fraction(10) ** (exponent + scale)
    if unscaled.denominator == 1 and abs(unscaled) < 10**precision:
        assert Fraction(decode_one(sent, f"decimal({precision},{scale})")) == unscaled / 10**scale
    else:
        with pytest.raises(BadEvents, match=r"digits (before|after) the point"):
            decode_one(sent, f"decimal({precision},{scale})")


@given(TEXTS, st.booleans())
def test_texts(text: str, ascii_only: bool) -> None:
    assert decode_one(json.dumps(text, ensure_ascii=ascii_only), "string") == text


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),
    st.integers(-1439, 1439),
)
def test_timestamps_with_offsets(naive: datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert decode_one(json.dumps(moment.isoformat()), "timestamp") == moment


@given(st.dates())
def test_dates(day: date) -> None:
    assert decode_one(f'"{day.isoformat()}"', "date") == day


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_json_is_the_same_text_without_spaces(value: Any) -> None:
    kept = decode_one(json.dumps(value, indent=2).replace("\n", " "), "json")
    assert kept == (None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False))
