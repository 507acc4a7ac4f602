"""Bodies to batches: the envelope and its defaults, the policies for unknown fields, the limits and the errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.errors import BadEvents, InvalidInput, TooLarge
from frazil.events.decoding import Limits
from frazil.events.decoding.body import UnsupportedMediaType
from tests.events.bodies import ARROW, JSON, NDJSON, RECEIVED_AT, both_paths, decode, ndjson, table

PLAIN = table({"name": "string", "n": "int"})


def details(body: bytes | str, spec: Any = PLAIN, content_type: str = NDJSON) -> list[dict[str, Any]]:
    with pytest.raises(BadEvents) as caught:
        decode(body, spec, content_type=content_type)
    found: list[dict[str, Any]] = caught.value.details
    return found


def test_the_batch_has_the_wire_schema_and_the_defaults() -> None:
    decoded = decode('{"events":[{"id":"a","data":{"name":"x"}},{"data":{"n":2}}]}', PLAIN, content_type=JSON)
    assert decoded.spec is PLAIN
    assert decoded.batch.schema.equals(PLAIN.wire_schema(), check_metadata=True)
    first, second = decoded.batch.to_pylist()
    assert first == {
        "_id": "a",
        "_op": "insert",
        "_ts": RECEIVED_AT,
        "_received_at": RECEIVED_AT,
        "_actor": None,
        "_source": None,
        "_workspace": None,
        "name": "x",
        "n": None,
    }
    assert len(second["_id"]) == 32
    assert int(second["_id"], 16) >= 0


def test_the_envelope_is_kept() -> None:
    event = {
        "id": "a",
        "op": "insert",
        "ts": "2024-01-01T00:00:00+01:00",
        "actor": "me",
        "source": "s",
        "workspace": "w",
    }
    body = ndjson([event | {"data": {}}])
    row = decode(body, PLAIN).batch.to_pylist()[0]
    assert row["_ts"] == datetime(2023, 12, 31, 23, tzinfo=UTC)
    assert (row["_id"], row["_actor"], row["_source"], row["_workspace"]) == ("a", "me", "s", "w")
    assert both_paths(body, True, PLAIN) == "fast"


def test_large_and_small_bodies_give_the_same_rows() -> None:
    """Small ones take the exact path, large ones the fast one."""
    event = {"id": "a", "ts": None, "data": {"n": 7, "name": "x"}}
    small, large = decode(ndjson([event]), PLAIN), decode(ndjson([event] * 1000), PLAIN)
    assert large.batch.to_pylist() == small.batch.to_pylist() * 1000


def test_generated_ids_differ() -> None:
    ids = decode(b'{"data":{}}\n' * 1000, PLAIN).batch.column("_id").to_pylist()
    assert len(set(ids)) == 1000


def test_a_byte_order_mark_and_blank_lines_are_skipped() -> None:
    assert decode(b'\xef\xbb\xbf{"data":{}}\r\n\r\n  \n{"data":{}}', PLAIN).batch.num_rows == 2
    assert decode(b'\xef\xbb\xbf {"events": [{"data":{}}]}', PLAIN, content_type=JSON).batch.num_rows == 1


@pytest.mark.parametrize(
    ("event", "field", "reason"),
    [
        ({"id": "", "data": {}}, "id", "the id is empty"),
        ({"id": "x" * 257, "data": {}}, "id", "the limit is 256"),
        ({"id": 1, "data": {}}, "id", "expected a text"),
        ({"op": "delete", "data": {}}, "op", "use 'insert'"),
        ({"ts": "2024-01-01T00:00:00", "data": {}}, "ts", "no time zone"),
        ({"actor": "x" * 257, "data": {}}, "actor", "the limit is 256"),
        ({"idd": "a", "data": {}}, "idd", "did you mean 'id'"),
        ({"name": "a", "data": {}}, "name", "inside `data`"),
        ({"id": "a"}, "data", "missing"),
        ({"data": []}, "data", "expected an object"),
        ([], "", "an event must be an object"),
        (None, "", "an event must be an object"),
        ({"data": {"nam": "x"}}, "data.nam", "did you mean 'name'"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
def test_bad_envelopes(event: Any, field: str, reason: str, content_type: str) -> None:
    good = {"data": {"n": 1}}
    body = ndjson([good, event]) if content_type == NDJSON else json.dumps({"events": [good, event]})
    (detail,) = details(body, content_type=content_type)
    assert (detail["index"], detail["field"]) == (1, field)
    assert reason in detail["reason"]


def test_every_bad_event_is_named_and_a_hundred_are_shown() -> None:
    found = details(b'{"data":{"n":1}}\n{"data":{"n":"x","name":3}}\nnot json\n{"data":{}}\n{"data":{"n":\xff}}\n')
    assert [(d["index"], d["field"]) for d in found] == [(1, "data.n"), (1, "data.name"), (2, ""), (4, "")]
    assert "line 3" in found[2]["reason"]
    assert "UTF-8" in found[3]["reason"]
    with pytest.raises(BadEvents, match=r"250 of 251 events are not valid") as caught:
        decode(b'{"data":{}}\n' + b'{"data":{"n":"x"}}\n' * 250, PLAIN)
    assert len(caught.value.details) == 100


def test_required_columns() -> None:
    spec = table({"name": {"type": "string", "required": True}})
    assert decode(b'{"data":{"name":""}}', spec).batch.column("name").to_pylist() == [""]
    for data in ({}, {"name": None}):
        (detail,) = details(ndjson([{"data": data}]), spec)
        assert detail == {"index": 0, "field": "data.name", "reason": "required, but missing or null"}


def test_unknown_fields_are_kept_as_one_json_object() -> None:
    spec = table({"n": "int"}, "keep")
    body = b'{"data":{"n":1}}\n{"data":{"Z z":1.10,"n":2,"y":{"a" : null},"w":null}}'
    assert decode(body, spec).batch.column("_extra").to_pylist() == [None, '{"Z z":1.10,"y":{"a":null},"w":null}']
    assert "twice" in details(b'{"data":{"x":{"a":1,"a":1}}}', spec)[0]["reason"]


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        (["true", "false"], "bool", [True, False]),
        (["1", "9223372036854775807"], "long", [1, 2**63 - 1]),
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["9007199254740993", "2.5"], "json", ["9007199254740993", "2.5"]),
        (['"a"', '"b"'], "string", ["a", "b"]),
        (['"a"', "1"], "json", ['"a"', "1"]),
        (['{"x": 1.10}', "[ ]"], "json", ['{"x":1.10}', "[]"]),
    ],
)
def test_new_columns(values: list[str], kind: str, kept: list[Any]) -> None:
    spec = table({"n": "int"}, "evolve")
    decoded = decode("\n".join(f'{{"data":{{"new":{value},"nothing":null}}}}' for value in values), spec)
    assert list(decoded.spec.columns) == ["n", "new"]
    assert str(decoded.spec.columns["new"].type) == kind
    assert decoded.batch.schema.equals(decoded.spec.wire_schema())
    assert decoded.batch.column("new").to_pylist() == kept


@pytest.mark.parametrize(
    ("value", "reason"), [("9223372036854775808", "decimal(38,0)"), ("1e400", "range"), ("NaN", "JSON")]
)
def test_new_columns_do_not_guess(value: str, reason: str) -> None:
    (detail,) = details(f'{{"data":{{"new":{value}}}}}', table({}, "evolve"))
    assert detail["field"] == "data.new"
    assert reason in detail["reason"]


@pytest.mark.parametrize("name", ["New", "_id", "a b", "", "x" * 64])
def test_new_columns_need_a_name(name: str) -> None:
    (detail,) = details(ndjson([{"data": {name: 1}}]), table({}, "evolve"))
    assert "not a column name" in detail["reason"]


def test_int_widens_to_long_where_a_value_needs_it() -> None:
    spec = table({"n": {"type": "int", "description": "how many"}}, "evolve")
    decoded = decode(b'{"data":{"n":1}}\n{"data":{"n":2147483648}}', spec)
    assert str(decoded.spec.columns["n"].type) == "long"
    assert decoded.spec.columns["n"].description == "how many"
    assert decoded.batch.column("n").to_pylist() == [1, 2**31]
    assert decode(b'{"data":{"n":1.0}}', spec).spec is spec
    assert "out of range" in details(b'{"data":{"n":9223372036854775808}}', spec)[0]["reason"]


def test_structs_do_not_evolve() -> None:
    (detail,) = details(b'{"data":{"s":{"y":1}}}', table({"s": "struct<x:int>"}, "evolve"))
    assert detail["field"] == "data.s.y"
    assert "the fields of a struct are fixed" in detail["reason"]


DEEP = b'{"data":{"j":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


@pytest.mark.parametrize(
    ("body", "limits", "code"),
    [
        (b'{"data":{"j":"' + b"x" * 100 + b'"}}', Limits(max_body_bytes=100), "body_too_large"),
        (b'{"data":{}}\n{"data":{"j":"' + b"x" * 100 + b'"}}', Limits(max_event_bytes=100), "event_too_large"),
        ('{"data":{"j":"' + "é" * 60 + '"}}', Limits(max_event_bytes=100), "event_too_large"),
        (b'{"data":{}}\n' * 4, Limits(max_events=3), "too_many_events"),
        (b'{"data":{"j":[[1]]}}', Limits(max_depth=3), "too_deep"),
        (b'{"data":{"li":[[1]]}}', Limits(max_depth=3), "too_deep"),
        (DEEP, Limits(), "too_deep"),
        (b'{"data":{"j":1,"li":null,"c":1}}', Limits(max_fields=2), "too_many_fields"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
def test_limits(body: bytes | str, limits: Limits, code: str, content_type: str) -> None:
    spec = table({"j": "json", "li": "list<list<int>>", "c": "int"})
    raw = body if isinstance(body, bytes) else body.encode()
    if content_type == JSON:
        raw = b'{"events":[' + b",".join(raw.strip().split(b"\n")) + b"]}"
    with pytest.raises(TooLarge) as caught:
        decode(raw, spec, content_type=content_type, limits=limits)
    assert caught.value.code == code
    assert caught.value.status == 413
    assert caught.value.hint


@pytest.mark.parametrize("content_type", [JSON, NDJSON])
def test_what_is_within_the_limits_passes(content_type: str) -> None:
    limits = Limits(max_event_bytes=31, max_events=2, max_depth=4, max_fields=1, max_body_bytes=100)
    body = b'{"data":{"j":[[1]]}}\n{"data":{"j":"xxxxxxxxxxxxxx"}}\n'
    if content_type == JSON:
        body = b'{"events":[' + b",".join(body.split()) + b"]}"
    assert decode(body, table({"j": "json"}), content_type=content_type, limits=limits).batch.num_rows == 2


@pytest.mark.parametrize(("body", "content_type"), [(b"", NDJSON), (b"\n \r\n", NDJSON), (b'{"events":[]}', JSON)])
def test_an_empty_batch(body: bytes, content_type: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(body, PLAIN, content_type=content_type)
    assert caught.value.code == "empty_batch"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b'[{"data":{}}]', "invalid_body", "list"),
        (b"", "invalid_body", "empty"),
        (b"null", "invalid_body", "not an object"),
        (b"{}", "invalid_body", "no `events`"),
        (b'{"event":[]}', "invalid_body", "only `events`"),
        (b'{"events":[{"data":{}}],"x":1}', "invalid_body", "only `events`"),
        (b'{"events":{}}', "invalid_body", "not a list"),
        (b'{"events":[],"events":[{"data":{}}]}', "invalid_body", "twice"),
        (b'{"events":[{"data":{}}', "invalid_json", "event 1"),
        (b'{"events":[{"data":{}}]', "invalid_json", "line 1"),
        (b'{"events":[{"data":{}}]}}', "invalid_json", "line 1"),
        (b'{"events":[{"data":{}},]}', "invalid_json", "event 1"),
        (b'{"events":[{"data":{}}],}', "invalid_json", "line 1"),
        (b'{"events":[{"data":\n{"n":01}}]}', "invalid_json", "line 2"),
        (b'{"events":[{"data":{"name":"\xff"}}]}', "invalid_json", "UTF-8"),
        (b'{"events"', "invalid_json", "line 1"),
        (b"{1:[]}", "invalid_json", "line 1"),
        (b"{" * 100_000, "invalid_json", "line 1"),
    ],
)
def test_broken_bodies(body: bytes, code: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(body, PLAIN, content_type=JSON)
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/json; charset=latin-1", "application/arrow"])
def test_unsupported_media_types(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        decode(b'{"events":[]}', PLAIN, content_type=content_type)
    assert (caught.value.code, caught.value.status) == ("unsupported_media_type", 415)
    assert ARROW in caught.value.hint


@pytest.mark.parametrize(
    "content_type",
    [
        "application/ndjson",
        "application/jsonl",
        "Application/X-NDJSON; charset=UTF-8",
        'application/jsonl;charset="utf-8"',
    ],
)
def test_spellings_of_media_types(content_type: str) -> None:
    assert decode(b'{"data":{}}', PLAIN, content_type=content_type).batch.num_rows == 1


def test_a_column_may_be_called_like_anything() -> None:
    spec = table({"id": "string", "data": "int", "class": "int", "events": "int", "type": "string"})
    body = b'{"id":"a","data":{"id":"b","data":1,"class":2,"events":3,"type":"x"}}'
    row = decode(body, spec).batch.to_pylist()[0]
    assert (row["_id"], row["id"], row["data"], row["class"], row["events"], row["type"]) == ("a", "b", 1, 2, 3, "x")


def test_a_table_without_columns() -> None:
    assert decode(b'{"id":"a","data":{}}', table({})).batch.num_rows == 1
