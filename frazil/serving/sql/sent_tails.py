"""Sent tails: the uncommitted events that a worker has already, so that each is sent to it once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from frazil.serving.sql.query import Relation, TailRows

_MOST_KEYS = 64
# Rows below the cut are left where they are until they outnumber the others by far: letting them go copies the rest.
_IDLE_ROWS = 10_000


@dataclass
class _Kept:
    low: int
    high: int
    size: int


@dataclass(frozen=True)
class TailDelivery:
    """What a worker receives of tails before it runs a statement."""

    tails: list[dict[str, Any]] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)


class SentTails:
    """The tails of one worker."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def delivery(self, relations: Sequence[Relation]) -> TailDelivery:
        """What this worker lacks. The worker takes it before anything else, so that it counts as delivered."""
        delivery = TailDelivery()
        tails = [relation.tail for relation in relations if relation.tail is not None]
        used: set[str] = set()
        # By position: when two cuts of one stream meet in a statement, the lower one decides where the tail begins.
        for tail in sorted(tails, key=lambda tail: (tail.key, tail.start)):
            self._deliver(tail, tail.key in used, delivery)
            used.add(tail.key)
        self._make_room(used, delivery)
        return delivery

    def _deliver(self, tail: TailRows, in_use: bool, delivery: TailDelivery) -> None:
        # Thousands of batches of one row become one: the engine's cost is by batch, and so is that of their size.
        kept = self._kept.get(tail.key)
        if kept is None or (not in_use and not kept.low <= tail.start <= kept.high):
            rows = tail.rows_from(tail.start).combine_chunks()
            self._kept[tail.key] = _Kept(tail.start, max(tail.start, tail.end), rows.nbytes)
            self._kept.move_to_end(tail.key)
            delivery.tails.append(_tail_header(tail.key, True, None, rows, delivery))
            return
        self._kept.move_to_end(tail.key)
        rows = tail.rows_from(max(kept.high, tail.start)).combine_chunks() if tail.end > kept.high else None
        if rows is not None:
            # A gap between two cuts of one statement is not filled; nothing below it is counted on later.
            kept.low = tail.start if tail.start > kept.high else kept.low
            kept.high = tail.end
            kept.size += rows.nbytes
        keep_from = None if in_use else self._outgrown(kept, tail)
        if rows is not None or keep_from is not None:
            delivery.tails.append(_tail_header(tail.key, False, keep_from, rows, delivery))

    def _outgrown(self, kept: _Kept, tail: TailRows) -> int | None:
        idle, live = tail.start - kept.low, kept.high - tail.start
        if idle <= 2 * live + _IDLE_ROWS:
            return None
        kept.size = kept.size * live // (idle + live)
        kept.low = tail.start
        return tail.start

    def _make_room(self, used: set[str], delivery: TailDelivery) -> None:
        for key in [key for key in self._kept if key not in used]:
            if len(self._kept) <= _MOST_KEYS and sum(kept.size for kept in self._kept.values()) <= self._max_bytes:
                return
            del self._kept[key]
            delivery.forget.append(key)


def _tail_header(
    key: str, fresh: bool, keep_from: int | None, rows: pa.Table | None, delivery: TailDelivery
) -> dict[str, Any]:
    at = None
    if rows is not None:
        at = len(delivery.buffers)
        delivery.buffers.append(as_stream(rows))
    return {"key": key, "fresh": fresh, "keep_from": keep_from, "buffer": at}


def as_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())
