"""Submissions and receipts: the events that go into a writer, and the answer that comes out of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from frazil.events import Ints, Keys, Token, id_keys
from frazil.events.declaration import TableSpec
from frazil.tables import received_us


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
