"""What the tests of decoding share: tables, bodies, and both paths side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from frazil.errors import FrazilError
from frazil.events.declaration import TableSpec, parse_table
from frazil.events.decoding import Limits, decode_events
from frazil.events.decoding.body import Decoded
from frazil.events.decoding.json_exact import decode_exact
from frazil.events.decoding.json_fast import decode_fast

RECEIVED_AT = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


def table(columns: dict[str, Any], unknown_fields: str = "reject") -> TableSpec:
    return parse_table({"name": "t", "columns": columns, "unknown_fields": unknown_fields})


def decode(body: bytes | str, spec: TableSpec, *, content_type: str = NDJSON, limits: Limits | None = None) -> Decoded:
    raw = body if isinstance(body, bytes) else body.encode()
    return decode_events(raw, content_type, spec, received_at=RECEIVED_AT, limits=limits or Limits())


def decode_one(value: str, declared: str) -> Any:
    """The value that a column of this type keeps for this JSON text."""
    body = f'{{"data":{{"a":{value}}}}}'
    return decode(body, table({"a": declared})).batch.column("a").to_pylist()[0]


def ndjson(events: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def stream(batch: pa.Table | pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def without_random_ids(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, with ids that nobody gave replaced by a word. Given ids of the tests are shorter than random ones."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        if len(row["_id"]) == 32:
            row["_id"] = "(random)"
    return rows


def both_paths(body: bytes, lines: bool, spec: TableSpec, limits: Limits | None = None) -> str:
    """Run both paths and compare them; says which of them took the body."""
    limits = limits or Limits()
    fast = decode_fast(body, lines, spec, received_at=RECEIVED_AT, limits=limits)
    refused = ""
    try:
        exact, extended = decode_exact(body, lines, spec, received_at=RECEIVED_AT, limits=limits)
    except FrazilError as error:
        refused = str(error)
    if refused:
        assert fast is None, f"the fast path took what the exact one refuses ({refused}): {body[:2000]!r}"
        return "refused"
    if fast is None:
        return "exact"
    assert extended is spec
    assert fast.schema.equals(exact.schema, check_metadata=True)
    fast.validate(full=True)
    # repr tells -0.0 from 0.0 and takes NaN as equal to NaN.
    assert repr(without_random_ids(fast)) == repr(without_random_ids(exact)), body[:2000]
    return "fast"
