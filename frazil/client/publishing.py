"""Publishing: batches of events sent in order, and their receipts added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from frazil.client.event_bodies import Body
from frazil.client.freshness import merge_tokens
from frazil.errors import FrazilError, InvalidInput


@dataclass(frozen=True)
class PublishReceipt:
    """All events are fsynced in the bus. `duplicates` of them were there before, under the same id.

    If a batch had to be sent again, events that its first try had written count as duplicates.
    """

    table: str
    accepted: int
    duplicates: int
    token: str
    snapshot_id: int | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any], table: str) -> PublishReceipt:
        return cls(
            table=str(body.get("table", table)),
            accepted=int(body["accepted"]),
            duplicates=int(body["duplicates"]),
            token=str(body["token"]),
            snapshot_id=body.get("snapshot_id"),
        )

    def __add__(self, later: PublishReceipt) -> PublishReceipt:
        return PublishReceipt(
            later.table,
            self.accepted + later.accepted,
            self.duplicates + later.duplicates,
            merge_tokens(self.token, later.token),
            later.snapshot_id,
        )


class SendBatch(Protocol):
    """Sends one request; with `wait` it returns when the events are visible."""

    def __call__(self, body: bytes, content_type: str, *, wait: bool) -> PublishReceipt: ...


def publish_batches(batches: Iterable[Body], send: SendBatch, *, wait: bool) -> PublishReceipt:
    """Send all batches in order. An error states how many events before it are safe."""
    total: PublishReceipt | None = None
    safe = 0
    following = iter(batches)
    batch = next(following, None)
    if batch is None:
        raise InvalidInput("there are no events", code="no_events", hint="pass at least one event")
    while batch is not None:
        body, count, content_type = batch
        batch = next(following, None)
        try:
            # The stream is in order: when its last batch is visible, all are.
            receipt = send(body, content_type, wait=wait and batch is None)
        except FrazilError as error:
            raise _counted_from(error, safe) from error
        safe += count
        total = receipt if total is None else total + receipt
    assert total is not None
    return total


def events_of_rows(
    rows: Iterable[Mapping[str, Any]], id: str | Callable[[Mapping[str, Any]], str] | None
) -> Iterator[dict[str, Any]]:
    """One event per row. `id` names the column of the event id, or computes it."""
    for row in rows:
        event: dict[str, Any] = {"data": row}
        if id is not None:
            event["id"] = str(id(row) if callable(id) else row[id])
        yield event


def _counted_from(error: FrazilError, safe: int) -> FrazilError:
    """The same error, with event numbers counted from the first event of the call, and the number of safe events."""
    if not safe:
        return error
    if isinstance(error.details, list):
        error.details = [
            {**item, "index": item["index"] + safe} if isinstance(item, dict) and "index" in item else item
            for item in error.details
        ]
    error.message = f"{error.message} (the first {safe:,} events are safe)"
    error.args = (error.message,)
    return error
