"""Envelope of an event, around its `data`: its fields, their defaults, and the batch they become together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration.column_types import TIMESTAMP
from frazil.events.declaration.table_spec import EXTRA, TableSpec
from frazil.events.decoding.json_text import Wrong, shown
from frazil.events.decoding.json_values import to_text, to_timestamp

ENVELOPE = ("id", "op", "ts", "actor", "source", "workspace", "data")
TEXTS = ("actor", "source", "workspace")
MAX_TEXT = 256
INSERT = "insert"
UPSERT, DELETE, PATCH_OP = "upsert", "delete", "patch"
ENTITY_OPS = (UPSERT, DELETE, PATCH_OP)


def microseconds(moment: datetime) -> int:
    """Since 1970 in UTC, without a detour over floats."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def random_ids(count: int) -> pa.Array:
    """`count` random 128-bit ids as hex, made in one piece."""
    offsets = np.arange(0, 32 * (count + 1), 32, dtype=np.int32)
    text = os.urandom(16 * count).hex().encode()
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def to_id(value: Any) -> str:
    text = to_short_text(value)
    if not text:
        raise Wrong("the id is empty; leave it out to get a generated id")
    return text


def to_short_text(value: Any) -> str:
    text = to_text(value)
    if len(text) > MAX_TEXT:
        raise Wrong(f"the text has {len(text):,} characters, the limit is {MAX_TEXT}")
    return text


def ops_of(spec: TableSpec) -> tuple[str, ...]:
    """The ops of this table; the first is the default."""
    return (INSERT,) if spec.kind == "log" else ENTITY_OPS


def not_an_op(spec: TableSpec) -> str:
    if spec.kind == "log":
        return f"not a valid op for a log; use {INSERT!r}"
    return f"not a valid op for an entity; use {', '.join(ENTITY_OPS)}"


def to_op(spec: TableSpec) -> Callable[[Any], str]:
    known = ops_of(spec)

    def convert(value: Any) -> str:
        if type(value) is not str or value not in known:
            raise Wrong(f"{shown(value)} is {not_an_op(spec)}")
        return value

    return convert


ENVELOPE_CONVERTERS = {
    "id": to_id,
    "ts": to_timestamp,
    "actor": to_short_text,
    "source": to_short_text,
    "workspace": to_short_text,
}


def assemble(
    spec: TableSpec,
    count: int,
    *,
    received_at: datetime,
    envelope: Mapping[str, pa.Array],
    columns: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """The batch in the wire schema. What is missing gets its default: a random id, the time of receipt, null."""
    schema = spec.wire_schema()
    received = pa.scalar(microseconds(received_at), TIMESTAMP)
    arrays = []
    for field in schema:
        given = envelope.get(field.name[1:]) if field.name[0] == "_" and field.name != EXTRA else None
        if field.name == "_id":
            arrays.append(_with_ids(given, count))
        elif field.name == "_op":
            arrays.append(_with_ops(given, ops_of(spec)[0], count))
        elif field.name == "_received_at":
            arrays.append(pa.repeat(received, count))
        elif field.name == "_ts":
            arrays.append(_with_times(given, received, count))
        else:
            array = given if given is not None else columns.get(field.name)
            arrays.append(pa.nulls(count, field.type) if array is None else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_ids(given: pa.Array | None, count: int) -> pa.Array:
    if given is None:
        return random_ids(count)
    return pc.coalesce(given, random_ids(count)) if given.null_count else given


def _with_ops(given: pa.Array | None, default: str, count: int) -> pa.Array:
    if given is None:
        return pa.repeat(pa.scalar(default), count)
    return pc.fill_null(given, default) if given.null_count else given


def _with_times(given: pa.Array | None, received: pa.Scalar, count: int) -> pa.Array:
    if given is None:
        return pa.repeat(received, count)
    return pc.fill_null(given, received) if given.null_count else given
