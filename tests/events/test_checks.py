from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import InvalidInput
from frazil.events.declaration import NO_CHECKS, Checks, parse_type
from frazil.events.declaration.column_checks import parse_checks
from frazil.requests import CreateTableRequest, decode_request


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("string", {"not_null": True, "pattern": "[a-z]+", "one_of": ["a", "b"], "unique": True}),
        ("long", {"range": {"min": 0, "max": 10}, "one_of": [1, 2]}),
        ("double", {"range": {"max": 1.5}}),
        ("decimal(10,2)", {"range": {"min": "0.01", "max": 5}}),
        ("date", {"range": {"min": "2024-01-01"}, "one_of": ["2024-05-01"]}),
        ("timestamp", {"range": {"max": "2024-05-01T12:00:00Z"}}),
        ("bool", {"one_of": [True]}),
        ("long", {"range": {"min": 0}}),
    ],
)
def test_checks_are_declared_and_read_back(text: str, declared: dict[str, Any]) -> None:
    checks = parse_checks(declared, "x", parse_type(text))
    assert checks
    assert checks.declared() == declared
    assert parse_checks(checks.declared(), "x", parse_type(text)) == checks
    assert hash(checks) == hash(parse_checks(declared, "x", parse_type(text)))


def test_no_checks() -> None:
    assert parse_checks({}, "x", parse_type("long")) == NO_CHECKS == Checks()
    assert not parse_checks({"not_null": False}, "x", parse_type("long"))


@pytest.mark.parametrize(
    ("text", "declared", "message"),
    [
        ("long", ["not_null"], "checks are an object"),
        ("long", {"notnull": True}, "no field 'notnull'"),
        ("long", {"not_null": 1}, "`not_null` is true or false"),
        ("string", {"range": {"min": 1}}, "string column cannot have a range"),
        ("long", {"range": {}}, "`min`, `max` or both"),
        ("long", {"range": {"min": None}}, "`min`, `max` or both"),
        ("long", {"range": {"low": 1}}, "`min`, `max` or both"),
        ("long", {"range": {"min": 5, "max": 1}}, "`min` 5 of the range is greater than `max` 1"),
        ("long", {"range": {"min": 1.5}}, "1.5 is not a whole number"),
        ("long", {"range": {"min": True}}, "expected a whole number"),
        ("long", {"range": {"min": [1]}}, "`min`, `max` or both"),
        ("double", {"range": {"min": "NaN"}}, "NaN is not allowed"),
        ("date", {"range": {"min": "soon"}}, "'soon' is not a date"),
        ("timestamp", {"range": {"min": "2024-05-01T12:00:00"}}, "has no time zone"),
        ("long", {"one_of": []}, "a list of 1 to"),
        ("long", {"one_of": "12"}, "a list of 1 to"),
        ("long", {"one_of": [1, "x"]}, "expected a whole number"),
        ("string", {"one_of": ["a", None]}, "one_of contains null"),
        ("json", {"one_of": ["{}"]}, "json column cannot have one_of"),
        ("long", {"pattern": "1+"}, "long column cannot have a pattern"),
        ("string", {"pattern": "("}, "is not valid"),
        ("string", {"pattern": "a)|(b"}, "is not valid"),
        ("string", {"pattern": ""}, "a text of 1 to"),
        ("json", {"unique": True}, "json column cannot be unique"),
    ],
)
def test_a_check_that_cannot_be_is_refused_with_the_column(text: str, declared: Any, message: str) -> None:
    table = {"name": "t", "columns": {"price": {"type": text, "checks": declared}}}
    with pytest.raises(InvalidInput, match="'price': ") as refused:
        decode_request(table, CreateTableRequest).spec()
    assert message in refused.value.message
    assert refused.value.code == "bad_check"
    assert refused.value.hint
