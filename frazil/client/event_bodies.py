"""Event bodies: events as NDJSON that keeps every value, or as Arrow streams, each event with an id."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from frazil.errors import InvalidInput

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
MAX_BATCH_EVENTS = 5_000
MAX_BATCH_BYTES = 4 << 20
MAX_BATCH_ROWS = 50_000

Body = tuple[bytes, int, str]
"""The bytes of one request, its number of events, and its content type."""


def event_batches(
    events: Iterable[Mapping[str, Any]], *, max_events: int = MAX_BATCH_EVENTS, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[Body]:
    """NDJSON bodies of these events, each event with an id."""
    lines: list[bytes] = []
    size = 0
    for index, event in enumerate(events):
        line = _line(index, event)
        if lines and (len(lines) >= max_events or size + len(line) > max_bytes):
            yield b"".join(lines), len(lines), NDJSON
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield b"".join(lines), len(lines), NDJSON


def _line(index: int, event: Mapping[str, Any]) -> bytes:
    if not isinstance(event, Mapping) or "data" not in event:
        raise InvalidInput(
            f"event {index} has no `data`",
            code="bad_events",
            hint="put the fields of an event under `data`; for plain rows use publish_rows",
        )
    if event.get("id") is None:
        event = {**event, "id": str(uuid.uuid4())}
    try:
        return encode_json(event) + b"\n"
    except InvalidInput as error:
        raise InvalidInput(f"event {index}: {error.message}", code=error.code, hint=error.hint) from error


def encode_json(value: Any) -> bytes:
    """JSON that keeps every value: decimals, times and bytes as text. A value without an exact form is refused."""
    try:
        return json.dumps(value, default=_exact, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInput(
            f"a value cannot be written as JSON: {error}",
            code="bad_value",
            hint="pass finite numbers, text, dates, times with a zone, decimals, bytes, lists and dicts",
        ) from error


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not a number")
        return f"{value:f}"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID | Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a numpy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def event_id(identity: str, number: int) -> str:
    """The id of the event with this number (from 1) in a source: the same in every run."""
    return f"{identity}-{number}"


def identity_of(*parts: str | bytes) -> str:
    """A short hash of these parts, as the identity of a source."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def arrow_batches(
    rows: Any, *, max_rows: int = MAX_BATCH_ROWS, first_row: int = 0, identity: str | None = None
) -> Iterator[Body]:
    """Arrow streams of the rows from `first_row` on, each row with an id in the column `id`.

    Rows without an id get a random one, or with `identity` one that is the same in every run.
    """
    import pyarrow as pa

    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, min(max_rows, 2 * MAX_BATCH_BYTES // row_bytes))
    for start in range(first_row, table.num_rows, step):
        part = table.slice(start, step)
        numbers = range(start + 1, start + 1 + part.num_rows)
        part = _with_ids(part, [event_id(identity, n) if identity else str(uuid.uuid4()) for n in numbers])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        yield sink.getvalue().to_pybytes(), part.num_rows, ARROW


def _with_ids(part: Any, new_ids: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.chunked_array([new_ids], pa.string())
    if "id" not in part.column_names:
        return part.append_column("id", ids)
    existing = part.column("id")
    if existing.null_count == 0:
        return part
    return part.set_column(part.column_names.index("id"), "id", pc.coalesce(existing.cast(pa.string()), ids))
