"""What goes into a writer and what comes out of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from frazil.errors import FrazilError, Unavailable
from frazil.events import Ints, Keys, Token, id_keys
from frazil.events.declaration import TableSpec


@dataclass(frozen=True)
class Receipt:
    """All events of one request are on the bus, fsynced: the new ones since now, the duplicates since before."""

    table: str
    stream: str
    accepted: int
    duplicates: int
    position: int
    """The last position that belongs to the request; where the table's watermark is above it, all is visible."""

    @property
    def token(self) -> Token:
        return Token.of(self.table, self.stream, self.position)

    def body(self) -> dict[str, Any]:
        return {
            "table": self.table.removeprefix("main."),
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "token": str(self.token),
        }


class TableReplaced(Unavailable):
    """The table was dropped, or another took its name, while this was under way: find it again."""

    code = "table_replaced"


class SchemaMoved(FrazilError):
    """The table changed while the request was decoded, and the two do not fit: decode it again."""

    code = "schema_moved"
    status = 503
    transient = True


@dataclass(frozen=True)
class PreparedEvents:
    """The events of one request, decoded, with what judging them needs. Made in a thread where that pays."""

    batch: pa.RecordBatch
    spec: TableSpec
    """The declaration they were decoded with; it may have columns that the table lacks."""
    keys: Keys
    received_us: Ints

    @classmethod
    def of(cls, batch: pa.RecordBatch, spec: TableSpec) -> PreparedEvents:
        return cls(batch, spec, id_keys(batch.column("_id")), received_us(batch))


class Submission:
    """One request in a writer's queue."""

    def __init__(self, prepared: PreparedEvents, *, urgent: bool) -> None:
        self.batch = prepared.batch
        self.spec = prepared.spec
        self.keys = prepared.keys
        self.received_us = prepared.received_us
        self.urgent = urgent
        self.done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def answer(self, receipt: Receipt) -> None:
        if not self.done.done():
            self.done.set_result(receipt)


def received_us(events: pa.RecordBatch | pa.Table) -> Ints:
    column = events.column("_received_at")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    times: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times
