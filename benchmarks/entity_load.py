"""Made-up records of an entity, as upserts: over HTTP, and as the messages that the gateway makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.bus import Message
from frazil.events import ROWS, encode
from frazil.events.declaration import TableSpec, parse_table

COLUMNS = {
    "id": "long",
    "name": "string",
    "plan": "string",
    "balance": "double",
    "visits": "int",
    "seen_at": "timestamp",
}
BATCH = 1_000
_PER_MESSAGE = 2_000
_PLANS = ("free", "pro", "team", "trial")


def declaration(name: str, kind: str) -> dict[str, Any]:
    of_kind = {"kind": "entity", "key": ["id"]} if kind == "entity" else {}
    return {"name": name, "columns": COLUMNS, **of_kind}


def spec(name: str) -> TableSpec:
    return parse_table(declaration(name, "entity"))


def ndjson(run: str, keys: Sequence[int]) -> bytes:
    """One request: a record for each key, whose name tells the run that wrote it."""
    lines = [
        json.dumps(
            {
                "id": f"{run}-{key}",
                "data": {
                    "id": key,
                    "name": f"{run} {key}",
                    "plan": _PLANS[key % 4],
                    "balance": key / 7,
                    "visits": key % 1000,
                    "seen_at": "2026-01-02T03:04:05Z",
                },
            }
        )
        for key in keys
    ]
    return ("\n".join(lines) + "\n").encode()


def bodies(run: str, keys: range) -> Iterator[bytes]:
    for first in range(0, len(keys), BATCH):
        yield ndjson(run, keys[first : first + BATCH])


def keys_to_change(rows: int, count: int, seed: int) -> list[int]:
    """Nine in ten are records that are there, the others are new; none twice."""
    rng = np.random.default_rng(seed)
    old = rng.choice(rows, size=min(rows, count - count // 10), replace=False)
    new = rows + seed * count + np.arange(count - len(old))
    return [int(key) for key in rng.permutation(np.concatenate([old, new]))]


def messages(history: TableSpec, run: str, keys: Sequence[int]) -> list[Message]:
    """As the gateway writes them to the bus under load."""
    made = []
    for first in range(0, len(keys), _PER_MESSAGE):
        batch = _arrow(history, run, np.asarray(keys[first : first + _PER_MESSAGE]))
        made.append(Message(encode([batch]), {ROWS: str(batch.num_rows)}))
    return made


def _arrow(history: TableSpec, run: str, keys: Any) -> pa.RecordBatch:
    count = len(keys)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    columns = {
        "_id": pa.array([f"{run}-{key}" for key in keys]),
        "_op": pa.repeat(pa.scalar("upsert"), count),
        "_ts": pa.repeat(now, count),
        "_received_at": pa.repeat(now, count),
        "id": pa.array(keys),
        "name": pa.array([f"{run} {key}" for key in keys]),
        "plan": pa.array([_PLANS[key % 4] for key in keys]),
        "balance": pa.array(keys / 7),
        "visits": pa.array((keys % 1000).astype("int32")),
        "seen_at": pa.repeat(now, count),
    }
    schema = history.wire_schema()
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema=schema
    )
