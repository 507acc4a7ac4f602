"""Event sender: rows of a bulk job go to the stream of a table as events, in their order.

Ids make it safe to send again: of equal ids the first counts.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from frazil.bus import EventBus, Message, Stream
from frazil.errors import Unavailable
from frazil.events import ROWS, Token, conform, decode, encode_parts, first_position, sequence_of
from frazil.events.declaration import EXTRA, TIMESTAMP, TableSpec
from frazil.lake.catalog import Lake, LakeTable

_T = TypeVar("_T")
_ROWS = 20_000
_BODY_BYTES = 4 << 20
_ROOM_SECONDS = 600.0
_LOOK_SECONDS = 0.5


class EventSender(Protocol):
    """Blocking calls, made by jobs in their threads."""

    def send(self, table: LakeTable, rows: pa.Table) -> Token:
        """Put rows of the table's wire schema on its stream; the token of the last. A full bus is waited for."""

    def wait_committed(self, table: LakeTable, *, timeout_seconds: float) -> LakeTable:
        """Wait until everything that is on the stream now is committed; the table as it is then."""


class BusSender:
    """Sends over the bus of the loop that it was made on."""

    def __init__(self, bus: EventBus, lake: Lake) -> None:
        self._bus = bus
        self._lake = lake
        self._loop = asyncio.get_running_loop()

    def send(self, table: LakeTable, rows: pa.Table) -> Token:
        stream = self._run(self._bus.open(table.stream))
        last = -1
        for start in range(0, rows.num_rows, _ROWS):
            for body in encode_parts(rows.slice(start, _ROWS), max_bytes=_BODY_BYTES):
                last = self._publish(stream, body)
        return Token.of(table.token_name, table.stream_identity, first_position(last + 1) - 1)

    def wait_committed(self, table: LakeTable, *, timeout_seconds: float) -> LakeTable:
        stream = self._run(self._bus.open(table.stream))
        head = self._run(stream.head())
        deadline = time.monotonic() + timeout_seconds
        while sequence_of((table := self._lake.table(table.name)).watermark) <= head:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{table.spec.short_name!r} is behind its stream",
                    code="table_behind",
                    hint="look at `frazil status`",
                )
            time.sleep(_LOOK_SECONDS)
        return table

    def _publish(self, stream: Stream, body: bytes) -> int:
        message, message_id = Message(body, {ROWS: str(decode(body).num_rows)}), uuid.uuid4().hex
        deadline = time.monotonic() + _ROOM_SECONDS
        while True:
            try:
                return self._run(stream.publish([message], message_id=message_id))
            except Unavailable as error:
                # An answer that was lost is sent again: the ids are the same.
                if time.monotonic() > deadline:
                    raise
                time.sleep(max(_LOOK_SECONDS, error.retry_after_seconds))

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def as_events(
    spec: TableSpec,
    rows: pa.Table,
    ids: pa.Array | pa.ChunkedArray,
    *,
    op: str,
    origin: Mapping[str, Any],
    at: datetime,
) -> pa.Table:
    """Rows of declared columns as events on the wire. `origin` has actor and source; `at` is when they happened."""
    count = rows.num_rows
    given = {
        "_id": ids,
        "_op": pa.repeat(pa.scalar(op), count),
        "_ts": pa.repeat(pa.scalar(at, TIMESTAMP), count),
        "_received_at": pa.repeat(pa.scalar(datetime.now(UTC), TIMESTAMP), count),
        **{f"_{name}": pa.repeat(pa.scalar(value, pa.string()), count) for name, value in origin.items()},
    }
    columns = {name: rows[name] for name in rows.column_names if name in spec.columns or name == EXTRA}
    return conform(pa.table({**given, **columns}), spec.wire_schema())
