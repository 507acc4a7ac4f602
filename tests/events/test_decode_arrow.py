"""Arrow streams: what fits is kept exactly, what does not is named, and what is hostile is refused early."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import BadEvents, FrazilError, InvalidInput, TooLarge
from frazil.events.declaration import TableSpec
from frazil.events.decoding import Limits
from frazil.events.decoding.body import Decoded
from tests.events.bodies import ARROW, RECEIVED_AT, decode, stream, table

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def decode_stream(
    columns: dict[str, Any], spec: TableSpec, *, limits: Limits | None = None, compression: str | None = None
) -> Decoded:
    return decode(stream(pa.table(columns), compression), spec, content_type=ARROW, limits=limits)


def one(array: pa.Array, declared: str) -> Any:
    return decode_stream({"a": array}, table({"a": declared})).batch.column("a").to_pylist()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_envelope_and_columns_side_by_side(compression: str | None) -> None:
    spec = table({"n": "long", "name": "string"})
    columns = {
        "id": ["a", None],
        "op": pa.array(["insert", None]),
        "ts": pa.array([NOON, None], pa.timestamp("ms", "Europe/Berlin")),
        "actor": pa.array(["me", "me"]).dictionary_encode(),
        "name": pa.array(["x", None]).dictionary_encode(),
    }
    decoded = decode_stream(columns, spec, compression=compression)
    assert decoded.batch.schema.equals(spec.wire_schema())
    first, second = decoded.batch.to_pylist()
    assert (first["_id"], first["_ts"], first["_actor"], first["name"], first["n"]) == ("a", NOON, "me", "x", None)
    assert (len(second["_id"]), second["_ts"], second["_op"], second["name"]) == (32, RECEIVED_AT, "insert", None)


def test_columns_inside_of_data() -> None:
    spec = table({"id": "int", "ts": "string"})
    data = pa.array([{"id": 1, "ts": "x"}, {"id": None, "ts": None}])
    rows = decode_stream({"id": ["a", "b"], "data": data}, spec).batch.to_pylist()
    assert [(row["_id"], row["id"], row["ts"]) for row in rows] == [("a", 1, "x"), ("b", None, None)]


def test_several_batches_are_one() -> None:
    spec = table({"n": "int"})
    sink = pa.BufferOutputStream()
    schema = pa.schema([("n", pa.int32())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for n in range(3):
            writer.write_batch(pa.record_batch([pa.array([n], pa.int32())], schema=schema))
    assert decode(sink.getvalue().to_pybytes(), spec, content_type=ARROW).batch.column("n").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("array", "declared", "kept"),
    [
        (pa.array([2**63 - 1], pa.uint64()), "long", [2**63 - 1]),
        (pa.array([1, None], pa.int8()), "int", [1, None]),
        (pa.array([3.0]), "int", [3]),
        (pa.array([1.5], pa.float16()), "double", [1.5]),
        (pa.array([0.5, float("inf")]), "float", [0.5, float("inf")]),
        (pa.array([2**53]), "double", [2.0**53]),
        (pa.array([5], pa.int64()), "decimal(3,2)", [Decimal(5)]),
        (pa.array([Decimal("1.50")]), "decimal(3,1)", [Decimal("1.5")]),
        (pa.array(["x"], pa.large_string()), "string", ["x"]),
        (pa.array(["x", None, "y" * 40], pa.string_view()), "string", ["x", None, "y" * 40]),
        (pa.array([b"x"], pa.binary(1)), "binary", [b"x"]),
        (pa.array([date(2024, 5, 1)], pa.date64()), "date", [date(2024, 5, 1)]),
        (pa.array([1_000], pa.timestamp("ns", "UTC")), "timestamp", [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        (pa.array([None, None]), "timestamp", [None, None]),
        (pa.array([[1, None], None, []], pa.large_list(pa.int8())), "list<long>", [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "list<long>", [[1, 2], None]),
        (pa.array([{"y": 1}, None]), "struct<x:string,y:int>", [{"x": None, "y": 1}, None]),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())), "map<string,long>", [[("k", 1)], None, []]),
        (pa.array(['{"a": 1.10}', "null", None]), "json", ['{"a":1.10}', None, None]),
        (pa.array([{"a": [1, 2.5]}, None]), "json", ['{"a":[1.0,2.5]}', None]),
        (pa.array([NOON], pa.timestamp("us", "UTC")), "json", ['"2024-05-01T12:00:00Z"']),
        (pa.array([[("k", b"x")]], pa.map_(pa.string(), pa.binary())), "json", ['{"k":"eA=="}']),
    ],
)
def test_lossless_casts(array: pa.Array, declared: str, kept: list[Any]) -> None:
    assert one(array, declared) == kept


@pytest.mark.parametrize(
    ("array", "declared"),
    [
        (pa.array([1, 2**63], pa.uint64()), "long"),
        (pa.array([1, 2**31]), "int"),
        (pa.array([1.0, 1.5]), "long"),
        (pa.array([1, 2**53 + 1]), "double"),
        (pa.array([0.5, 0.1]), "float"),
        (pa.array([Decimal("1.50"), Decimal("1.55")]), "decimal(3,1)"),
        (pa.array([1, 100]), "decimal(3,2)"),
        (pa.array([1000, 1], pa.timestamp("ns", "UTC")), "timestamp"),
        (pa.array([0, 2**55], pa.timestamp("s", "UTC")), "timestamp"),
        (pa.array([0, 2**40], pa.timestamp("s", "UTC")), "timestamp"),
        (pa.array([[1], [2**31]]), "list<int>"),
        (pa.array([{"x": 1}, {"x": 2**31}]), "struct<x:int>"),
        (pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())), "map<string,int>"),
        (pa.array(["1", "{"]), "json"),
        (pa.array(["1", '{"a":1,"a":1}']), "json"),
    ],
)
def test_the_row_that_would_lose_something_is_named(array: pa.Array, declared: str) -> None:
    with pytest.raises(BadEvents) as caught:
        one(array, declared)
    assert [(d["index"], d["field"]) for d in caught.value.details] == [(1, "a")]


@pytest.mark.parametrize(
    ("array", "declared", "reason"),
    [
        (pa.array([NOON.replace(tzinfo=None)]), "timestamp", "zone"),
        (pa.array(["1"]), "long", "expected long, got Arrow string"),
        (pa.array([1]), "string", "expected string"),
        (pa.array([1]), "bool", "expected bool"),
        (pa.array([1.5]), "decimal(3,1)", "expected decimal"),
        (pa.array([{"z": 1}]), "struct<x:int>", "unknown or repeated field"),
        (pa.array([[1]], pa.list_view(pa.int64())), "list<long>", "not supported"),
        (pa.RunEndEncodedArray.from_arrays([1], [5]), "long", "not supported"),
        (pa.ListArray.from_arrays([0, 1], pa.array(["x"]).dictionary_encode()), "list<string>", "not supported"),
    ],
)
def test_types_that_do_not_fit(array: pa.Array, declared: str, reason: str) -> None:
    with pytest.raises(BadEvents) as caught:
        one(array, declared)
    assert reason in caught.value.details[0]["reason"]


@pytest.mark.parametrize(
    ("columns", "index", "field"),
    [
        ({"id": ["a", ""]}, 1, "id"),
        ({"id": ["a", "x" * 257]}, 1, "id"),
        ({"id": [1, 2]}, 0, "id"),
        ({"op": ["insert", "delete"]}, 1, "op"),
        ({"ts": [NOON.replace(tzinfo=None)]}, 0, "ts"),
        ({"source": ["x" * 257]}, 0, "source"),
        ({"data": pa.array([{"n": 1}, None])}, 1, "data"),
        ({"data": pa.array([{"n": 1}]), "n": [1]}, 0, "n"),
        ({"nn": [1]}, 0, "nn"),
    ],
)
def test_bad_envelopes(columns: dict[str, Any], index: int, field: str) -> None:
    with pytest.raises(BadEvents) as caught:
        decode_stream(columns, table({"n": "int"}))
    assert (caught.value.details[0]["index"], caught.value.details[0]["field"]) == (index, field)


def test_required_columns() -> None:
    spec = table({"n": {"type": "int", "required": True}, "m": "int"})
    for columns in ({"n": [1, None]}, {"m": [1, 2]}):
        with pytest.raises(BadEvents, match="required"):
            decode_stream(columns, spec)


def test_unknown_columns_are_kept() -> None:
    spec = table({"n": "int"}, "keep")
    decoded = decode_stream({"n": [1, 2], "X": pa.array([Decimal("1.10"), None]), "y": [None, {"a": [True]}]}, spec)
    assert decoded.batch.column("_extra").to_pylist() == ['{"X":1.10}', '{"y":{"a":[true]}}']


def test_unknown_columns_become_columns() -> None:
    spec = table({"n": "int"}, "evolve")
    columns = {
        "n": [1, 2**40],
        "small": pa.array([1, 2], pa.uint8()),
        "when": pa.array([NOON, None], pa.timestamp("s", "UTC")),
        "price": pa.array([Decimal("1.10"), None]),
        "deep": [{"a": 1}, None],
        "nothing": pa.array([None, None], pa.string()),
    }
    decoded = decode_stream(columns, spec)
    types = {name: str(column.type) for name, column in decoded.spec.columns.items()}
    assert types == {"n": "long", "small": "long", "when": "timestamp", "price": "decimal(3,2)", "deep": "json"}
    assert decoded.batch.schema.equals(decoded.spec.wire_schema())
    assert decoded.batch.column("deep").to_pylist() == ['{"a":1}', None]
    with pytest.raises(BadEvents, match="not a column name"):
        decode_stream({"Bad": [1]}, spec)


@pytest.mark.parametrize(
    ("columns", "limits", "code"),
    [
        ({"s": ["x" * 300]}, Limits(max_body_bytes=200), "body_too_large"),
        ({"s": ["x", "x" * 300, "x" * 20]}, Limits(max_event_bytes=200), "event_too_large"),
        ({"l": [["x" * 150] * 2, ["x"]]}, Limits(max_event_bytes=200), "event_too_large"),
        ({"n": [1, 2, 3]}, Limits(max_events=2), "too_many_events"),
        ({"j": ["1", "[[1]]"]}, Limits(max_depth=3), "too_deep"),
        ({"j": ["[" * 100_000 + "]" * 100_000]}, Limits(), "too_deep"),
        ({"l": [[["x"]]]}, Limits(max_depth=2), "too_deep"),
        ({"s": ["x"], "n": [1]}, Limits(max_fields=1), "too_many_fields"),
        ({f"c{i}": [1] for i in range(20)}, Limits(max_fields=2), "too_many_fields"),
    ],
)
def test_limits(columns: dict[str, Any], limits: Limits, code: str) -> None:
    spec = table({"s": "string", "l": "list<string>", "n": "long", "j": "json"})
    with pytest.raises(TooLarge) as caught:
        decode_stream(columns, spec, limits=limits)
    assert caught.value.code == code


def test_a_compressed_stream_may_not_unpack_to_more_than_a_body() -> None:
    bomb = stream(pa.table({"s": ["\0" * (4 << 20)]}), "zstd")
    assert len(bomb) < 10_000
    with pytest.raises(TooLarge) as caught:
        decode(bomb, table({"s": "string"}), content_type=ARROW, limits=Limits(max_body_bytes=1 << 20))
    assert caught.value.code == "body_too_large"


def test_a_dictionary_or_a_view_may_not_unpack_to_more_than_a_body() -> None:
    one_large = pa.array(["x" * 100_000])
    encoded = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), one_large)
    _, view, *text = one_large.cast(pa.string_view()).buffers()
    views = pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(view.to_pybytes() * 1000), *text])
    for array in (encoded, views):
        with pytest.raises(BadEvents, match="larger than the limit"):
            decode_stream({"s": array}, table({"s": "string"}), limits=Limits(max_body_bytes=1 << 20))


def test_streams_that_are_cut_off_or_have_more_behind_them() -> None:
    spec = table({"n": "long"})
    body = stream(pa.table({"n": [-1, 0]}))
    assert decode(body, spec, content_type=ARROW).batch.num_rows == 2
    for damaged in [body[:size] for size in range(len(body))] + [body + b"x", body + body, random.randbytes(1000)]:
        with pytest.raises(InvalidInput) as caught:
            decode(damaged, spec, content_type=ARROW)
        assert caught.value.code == "invalid_arrow"
        assert caught.value.hint


def test_the_file_format_and_empty_streams() -> None:
    spec = table({"n": "long"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("n", pa.int64())])) as writer:
        writer.write(pa.table({"n": [1]}))
    with pytest.raises(InvalidInput) as caught:
        decode(sink.getvalue().to_pybytes(), spec, content_type=ARROW)
    assert caught.value.code == "invalid_arrow"
    with pytest.raises(InvalidInput) as caught:
        decode(stream(pa.table({"n": pa.array([], pa.int64())})), spec, content_type=ARROW)
    assert caught.value.code == "empty_batch"


def test_a_column_given_twice() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(InvalidInput, match="twice"):
        decode(stream(twice), table({"n": "long"}), content_type=ARROW)


def test_types_with_senseless_parameters() -> None:
    """Arrow itself does not look at the scale that a stream declares, and a cast with it ends the process."""
    body = stream(pa.table({"m": pa.array([Decimal(1)], pa.decimal128(38, 37))}))
    assert body.count(struct.pack("<i", 37)) == 1
    hostile = body.replace(struct.pack("<i", 37), struct.pack("<i", 8323073))
    with pytest.raises(BadEvents, match="scale 8323073 is not supported"):
        decode(hostile, table({"m": "decimal(9,2)"}), content_type=ARROW)
    with pytest.raises(BadEvents, match="zone"):
        decode_stream({"t": pa.array([0], pa.timestamp("s", "Nowhere/Land"))}, table({"t": "timestamp"}))


def test_text_that_is_not_utf8_is_damage() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(InvalidInput) as caught:
        decode_stream({"s": bad}, table({"s": "string"}))
    assert caught.value.code == "invalid_arrow"


@settings(max_examples=120)
@given(st.data())
def test_damaged_bytes_never_do_more_than_raise_our_errors(data: st.DataObject) -> None:
    columns = {"id": ["a", "b"], "s": ["x", None], "l": [["y"], []], "d": pa.array(["q", "q"]).dictionary_encode()}
    body = bytearray(stream(pa.table(columns), data.draw(st.sampled_from([None, "zstd"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 4, 127, 128, 255]))
    spec = table({"s": "string", "l": "list<string>", "d": "string"}, data.draw(st.sampled_from(["keep", "reject"])))
    try:
        batch = decode(bytes(body), spec, content_type=ARROW).batch
    except FrazilError as error:
        batch = None
        json.dumps(error.body())
    if batch is not None:
        batch.validate(full=True)
