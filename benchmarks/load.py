"""Made-up events: the same for the product and its control, and other ids in every round."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.bus import Message
from frazil.events import ROWS, encode, rows
from frazil.events.declaration import TableSpec, parse_table

EVENT_BYTES = 200
EVENTS_PER_BODY = 500
COLUMNS = {"user_id": "long", "kind": "string", "amount": "double", "at": "timestamp", "note": "string"}
_KINDS = ("view", "click", "order", "search")
_LENGTH = struct.Struct(">I")


def declaration(name: str) -> dict[str, Any]:
    return {"name": name, "columns": COLUMNS}


def spec(name: str) -> TableSpec:
    return parse_table(declaration(name))


def ndjson(run: str, first: int, count: int) -> bytes:
    """One request: lines of exactly `EVENT_BYTES` bytes, ids that no other run has."""
    rng = np.random.default_rng([int(run, 16), first])
    users = rng.integers(0, 1_000_000, count).tolist()
    amounts = np.round(rng.random(count) * 1000, 2).tolist()
    noise = rng.bytes(64 * count).hex()
    lines = []
    for at in range(count):
        line = (
            f'{{"id":"{run}-{first + at:012d}","data":{{"user_id":{users[at]},"kind":"{_KINDS[at % 4]}",'
            f'"amount":{amounts[at]},"at":"2026-01-02T03:04:05.{at:06d}Z","note":"'
        )
        end = '"}}\n'
        lines.append(line + noise[128 * at : 128 * at + EVENT_BYTES - len(line) - len(end)] + end)
    return "".join(lines).encode()


def bodies(run: str, events: int, *, per_body: int = EVENTS_PER_BODY) -> Iterator[bytes]:
    for first in range(0, events, per_body):
        yield ndjson(run, first, min(per_body, events - first))


def write_bodies(path: Path, run: str, events: int) -> int:
    """A file that both load generators read before they begin. Returns how many bodies it has."""
    return pack_bodies(path, bodies(run, events))


def pack_bodies(path: Path, made: Iterable[bytes]) -> int:
    """Write each body after its length. Returns how many."""
    count = 0
    with path.open("wb") as file:
        for body in made:
            file.write(_LENGTH.pack(len(body)))
            file.write(body)
            count += 1
    return count


def messages(table: TableSpec, run: str, events: int, *, per_message: int) -> list[Message]:
    """Messages as the gateway writes them to the bus under load."""
    made = []
    for first in range(0, events, per_message):
        batch = arrow(table, run, first, min(per_message, events - first))
        made.append(Message(encode([batch]), {ROWS: str(batch.num_rows)}))
    return made


def arrow(table: TableSpec, run: str, first: int, count: int) -> pa.RecordBatch:
    """Events of the same kind as `ndjson` has them, decoded."""
    rng = np.random.default_rng([int(run, 16), first])
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    noise = rng.bytes(32 * count).hex()
    columns = {
        "_id": pa.array([f"{run}-{first + at:012d}" for at in range(count)]),
        "_op": pa.repeat(pa.scalar("insert"), count),
        "_ts": pa.repeat(now, count),
        "_received_at": pa.repeat(now, count),
        "user_id": pa.array(rng.integers(0, 1_000_000, count)),
        "kind": pa.array([_KINDS[at % 4] for at in range(count)]),
        "amount": pa.array(np.round(rng.random(count) * 1000, 2)),
        "at": pa.array(np.arange(count) + 1_767_323_045_000_000).cast(pa.timestamp("us", "UTC")),
        "note": pa.array([noise[64 * at : 64 * at + 64] for at in range(count)]),
    }
    schema = table.wire_schema()
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_rows(table: TableSpec, sent: list[Message]) -> pa.Table:
    """The rows that these messages become when they are the first of their stream."""
    from frazil.bus import Delivery

    deliveries = [Delivery(number, message.body, message.headers) for number, message in enumerate(sent, 1)]
    return rows(deliveries, table.row_schema())
