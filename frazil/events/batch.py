"""A batch of events on the bus: Arrow IPC, one message where it fits, several that count together where it does not.

A group of messages carries `frazil-group` and `frazil-part: i/n`. It counts only if all n parts follow each other: the
bus writes them at once, but a power cut can leave a part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import TooLarge
from frazil.events.positions import MAX_EVENTS_PER_MESSAGE, first_position

GROUP = "frazil-group"
PART = "frazil-part"
ROWS = "frazil-rows"
"""How many events the message holds, so that a reader can close a batch without opening it."""
URGENT = "frazil-urgent"
"""A caller waits for this message to be visible: commit now, not when the batch is full or old."""

# Columns of a message are small: handing each to a thread costs as much again as compressing it.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


class StreamMessage(Protocol):
    """A message as the bus hands it out."""

    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


def encode(batches: Sequence[pa.RecordBatch]) -> bytes:
    """One message body of record batches that share a schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def encode_parts(table: pa.Table, *, max_bytes: int) -> list[bytes]:
    """As few message bodies as hold the rows, each below `max_bytes`."""
    batches = table.combine_chunks().to_batches()
    body = encode(batches) if table.num_rows <= MAX_EVENTS_PER_MESSAGE else b""
    if body and len(body) <= max_bytes:
        return [body]
    if table.num_rows == 1:
        raise TooLarge(
            f"one event has {len(body):,} bytes, the limit of the bus is {max_bytes:,}",
            code="event_too_large",
            hint="split the event, or store the large value elsewhere and send its URL",
        )
    half = table.num_rows // 2
    return encode_parts(table.slice(0, half), max_bytes=max_bytes) + encode_parts(
        table.slice(half), max_bytes=max_bytes
    )


def decode(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()


def part_headers(group: str, number_of_parts: int) -> list[dict[str, str]]:
    if number_of_parts == 1:
        return [{}]
    return [{GROUP: group, PART: f"{i + 1}/{number_of_parts}"} for i in range(number_of_parts)]


def complete_messages(deliveries: Sequence[StreamMessage]) -> tuple[list[StreamMessage], int]:
    """The messages that count, and the sequence below which the stream is decided.

    Parts of a group that broke off count for nothing; a group that may still be going on is left for the next read.
    A group that was sent again, because its producer got no receipt, is checked again from each first part.
    """
    counted: list[StreamMessage] = []
    at = 0
    while at < len(deliveries):
        if GROUP not in deliveries[at].headers:
            counted.append(deliveries[at])
            at += 1
            continue
        following, total = _parts_from(deliveries, at)
        if following - at == total:
            counted.extend(deliveries[at:following])
        elif following == len(deliveries) and following > at:
            return counted, deliveries[at].sequence
        at = max(following, at + 1)
    return counted, deliveries[-1].sequence + 1 if deliveries else 0


def _parts_from(deliveries: Sequence[StreamMessage], at: int) -> tuple[int, int]:
    """Where the parts end that follow each other from `at` on as 1/n, 2/n, …, and n."""
    group = deliveries[at].headers[GROUP]
    total = int(deliveries[at].headers.get(PART, "").partition("/")[2] or 0)
    for number, delivery in enumerate(deliveries[at : at + total]):
        if delivery.headers.get(GROUP) != group or delivery.headers.get(PART) != f"{number + 1}/{total}":
            return at + number, total
    return min(at + total, len(deliveries)), total


def rows(deliveries: Iterable[StreamMessage], schema: pa.Schema) -> pa.Table:
    """The events of these messages as rows of `schema`, each with its position as `_seq`, in the stream's order."""
    tables = []
    for delivery in deliveries:
        events = decode(delivery.body)
        start = first_position(delivery.sequence)
        seq = pa.array(np.arange(start, start + events.num_rows, dtype=np.int64))
        tables.append(conform(events.add_column(0, schema.field("_seq"), seq), schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns: widened if its writer had an older type, null if it had no such column."""
    if table.schema.equals(schema):
        return table
    if unknown := set(table.column_names) - set(schema.names):
        raise ValueError(f"columns that are not in the schema: {sorted(unknown)}")
    columns = []
    for field in schema:
        at = table.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
        elif table.schema.field(at).type.equals(field.type):
            columns.append(table.column(at))
        else:
            columns.append(pc.cast(table.column(at), field.type))
    return pa.table(columns, schema=schema)
