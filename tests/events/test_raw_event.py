"""A row as the event that it came from: what is written is decoded to the same row."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from frazil.events.declaration import TableSpec, parse_table
from frazil.events.decoding import NDJSON, Limits, decode_events, event_as_sent, raw_data

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
COLUMNS = {
    "s": "string",
    "b": "bool",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "n": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
    "raw": "binary",
    "j": "json",
    "many": "list<list<decimal(5,2)>>",
    "one": "struct<a:timestamp,b:map<long,double>>",
    "named": "map<string,binary>",
}
EVENTS: list[dict[str, Any]] = [
    {"id": "1", "ts": "0001-01-01T00:00:00Z", "data": {}},
    {
        "id": "a 🧊\\\"'\n",
        "ts": "2024-05-01T12:00:00.123456+02:00",
        "actor": "me",
        "source": "s",
        "workspace": "w",
        "data": {
            "s": 'ä\n"',
            "b": False,
            "i": -(2**31),
            "l": 2**63 - 1,
            "f": 0.1,
            "d": -0.0,
            "n": "-1234567890123456789012345678.0123456789",
            "day": "9999-12-31",
            "at": "1969-12-31T23:59:59.999999Z",
            "raw": "AAEC/w==",
            "j": {"z": [1.10, None, {"a": 1e400}], "a": "b"},
            "many": [["1.25", None], None, []],
            "one": {"a": None, "b": {"-5": 1e300, "7": None}},
            "named": {"": "", "k": "/w=="},
        },
    },
    {"id": "3", "data": {"f": "NaN", "d": "-Infinity", "j": "text", "l": 0}},
]


def decoded(body: bytes, spec: TableSpec) -> pa.RecordBatch:
    return decode_events(body, NDJSON[0], spec, received_at=NOW, limits=Limits()).batch


def letters(batch: pa.RecordBatch, spec: TableSpec) -> list[bytes]:
    names = ("id", "op", "ts", "actor", "source", "workspace")
    rows = batch.to_pylist()
    return [event_as_sent({name: row[f"_{name}"] for name in names} | {"data": raw_data(row, spec)}) for row in rows]


@pytest.mark.parametrize(
    ("declared", "events"),
    [
        ({"columns": COLUMNS}, EVENTS),
        (
            {"columns": {"a": "long"}, "unknown_fields": "keep"},
            [{"id": "1", "data": {"a": 1, "B c": [1, {"x": 1.50}], "z": None}}, {"id": "2", "data": {"a": 2}}],
        ),
        (
            {"columns": {"k": "long", "v": "string", "w": "string"}, "kind": "entity", "key": ["k"]},
            [
                {"id": "1", "op": "upsert", "data": {"k": 1, "v": "x"}},
                {"id": "2", "op": "patch", "data": {"k": 1, "v": None}},
                {"id": "3", "op": "delete", "data": {"k": 1}},
            ],
        ),
    ],
)
def test_what_is_written_is_decoded_to_the_same_row(declared: dict[str, Any], events: list[dict[str, Any]]) -> None:
    spec = parse_table({"name": "t", **declared})
    spec = spec.history() if spec.kind == "entity" else spec
    body = b"\n".join(json.dumps(event).replace("Infinity}", "1e400}").encode() for event in events)
    batch = decoded(body, spec)
    again = decoded(b"\n".join(letters(batch, spec)), spec)
    left, right = ([repr(row) for row in each.to_pylist()] for each in (batch, again))
    assert left == right
