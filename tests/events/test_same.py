from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from frazil.events import differing_rows
from frazil.events.declaration import TableSpec
from tests.events.bodies import RECEIVED_AT, decode, table

SPEC = table({"n": "int", "d": "double", "s": "string", "l": "list<double>", "m": "map<string,int>", "j": "json"})


def rows(text: str, spec: TableSpec = SPEC) -> pa.Table:
    return pa.Table.from_batches([decode(text, spec).batch])


def later(events: pa.Table) -> pa.Table:
    """The same request received a minute later."""
    moment = RECEIVED_AT + timedelta(minutes=1)
    for name in ("_ts", "_received_at"):
        at = events.schema.get_field_index(name)
        values = [moment if value == RECEIVED_AT else value for value in events.column(at).to_pylist()]
        events = events.set_column(at, events.schema.field(at), pa.array(values, events.schema.field(at).type))
    return events


FULL = '{"id":"a","data":{"n":1,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}\n{"id":"b","data":{}}'


def test_the_same_request_again_is_the_same() -> None:
    assert differing_rows(rows(FULL), rows(FULL)) == []
    assert differing_rows(rows(FULL), later(rows(FULL))) == []
    assert differing_rows(rows(FULL).slice(1), rows(FULL).slice(1)) == []


@pytest.mark.parametrize(
    "other",
    [
        '{"id":"a","data":{"n":2,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":null,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":1,"s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":"NaN","s":"","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":"NaN","s":"x","l":[1,2,null],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":"NaN","s":"x","l":[1,"NaN"],"m":{"k":1},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":2},"j":{"a":1}}}',
        '{"id":"a","data":{"n":1,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1.0}}}',
        '{"id":"a","actor":"me","data":{"n":1,"d":"NaN","s":"x","l":[1,"NaN",null],"m":{"k":1},"j":{"a":1}}}',
    ],
)
def test_any_other_value_differs(other: str) -> None:
    assert differing_rows(rows(FULL), rows(other + '\n{"id":"b","data":{}}')) == [0]


def test_a_given_time_counts() -> None:
    given = '{"id":"a","ts":"2024-01-01T00:00:00Z","data":{}}'
    other = '{"id":"a","ts":"2024-01-01T00:00:01Z","data":{}}'
    default = '{"id":"a","data":{}}'
    assert differing_rows(rows(given), later(rows(given))) == []
    assert differing_rows(rows(given), rows(other)) == [0]
    assert differing_rows(rows(default), later(rows(given))) == [0]


def test_older_and_newer_schemas() -> None:
    older = table({"n": "int", "f": "float", "m": "decimal(4,2)", "s": "struct<x:int>"})
    newer = table({"new": "string", "m": "decimal(9,2)", "n": "long", "f": "double", "s": "struct<x:long,y:int>"})

    def event(**data: Any) -> str:
        return json.dumps({"id": "a", "data": data})

    same = event(n=1, f=0.1, m="1.50", s={"x": 1})
    assert differing_rows(rows(same, older), rows(same, newer)) == []
    assert differing_rows(rows(same, newer), rows(same, older)) == []
    assert differing_rows(rows(same, older), rows(event(n=1, f=0.1, m="1.50", s={"x": 1}, new="x"), newer)) == [0]
    assert differing_rows(rows(same, older), rows(event(n=2**31, f=0.1, m="1.50", s={"x": 1}), newer)) == [0]
    assert differing_rows(rows(same, older), rows(event(n=1, f=0.1, m="1.50", s={"x": 1, "y": 1}), newer)) == [0]
    assert differing_rows(rows(same, older), rows(event(n=1, f=0.1, m="1.51", s={"x": 1}), newer)) == [0]


def test_tables_of_several_chunks() -> None:
    two = rows(FULL)
    chunked = pa.concat_tables([two.slice(0, 1), two.slice(1, 1)])
    assert differing_rows(chunked, two) == []


def test_tables_of_different_length_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="compared"):
        differing_rows(rows(FULL), rows(FULL).slice(1))


def test_a_missing_list_is_an_empty_one() -> None:
    """A committed null list of structs comes back empty from the table, and its retry is still a duplicate."""
    kind = pa.list_(pa.struct([("sku", pa.string())]))
    first = pa.table({"_id": ["a", "b", "c"], "items": pa.array([[], None, [{"sku": "x"}]], kind)})
    second = pa.table({"_id": ["a", "b", "c"], "items": pa.array([None, None, None], kind)})
    assert differing_rows(first, second) == [2]
