"""Fresh documents: what was written since the generation was cut, searched exactly and at once.

Of each document the newest change is kept. A view joins them with one generation: changes at or above its watermark
count, and hide what the generation has of those documents; those below it are in the generation already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.errors import Unavailable
from frazil.serving.artifacts.manifest import Vectors
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.search.fresh_slots import FreshDocument, FreshSlots
from frazil.serving.search.generation import Generation, Mask
from frazil.serving.search.searchable import Key, Searchable

MAX_DOCUMENTS = 50_000
MAX_BYTES = 256 << 20
# Slots that no longer count are swept when they are more than those that do, and then some.
_SWEPT_FROM = 256


class FreshFull(Unavailable):
    """More was written since the last build than is kept in memory; a newer generation makes room."""

    code = "fresh_full"


class FreshGap(Unavailable):
    """The generation ends before what is kept here begins: something between the two would be missing."""

    code = "fresh_gap"


@dataclass(frozen=True)
class DocumentChange:
    """One write of a document, at its position in the stream; without a row, it was deleted.

    Ids are judged before: of a log, only what counts comes here.
    """

    position: int
    key: Key
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class PreparedChanges:
    """Changes, the newest of each document, cut and embedded."""

    documents: tuple[FreshDocument, ...]
    deleted: tuple[DocumentChange, ...]


@dataclass(frozen=True)
class _Newest:
    position: int
    slot: int | None


class FreshView:
    """One state of the fresh documents beside one generation. It never changes, and costs nothing while it is empty."""

    def __init__(
        self, generation: Generation | None, slots: FreshSlots, live: Mask, hidden: Mask | None, head: int
    ) -> None:
        self.generation = generation
        self.slots = slots
        self.head = head
        """Every change below this position is in the answer."""
        self.live = live
        self.hidden = hidden
        """The generation's rows that were changed or deleted since; None if there are none."""
        self._vectors = slots.vectors(len(slots.chunks))
        self._homes = slots.homes(len(slots.chunks))

    @property
    def vectors(self) -> Vectors:
        return self._vectors

    @property
    def homes(self) -> Ordinals:
        """The slot of each vector."""
        return self._homes

    @cached_property
    def live_slots(self) -> Ordinals:
        """The slots of the documents of this view; the i-th is that of the i-th of `rows`."""
        return np.flatnonzero(self.live)

    @property
    def count(self) -> int:
        return len(self.live_slots)

    @cached_property
    def rows(self) -> pa.Table:
        """The documents, for filters to judge."""
        rows = [dict(self.slots.documents[slot].row) for slot in self.live_slots]
        return pa.Table.from_pylist(rows, schema=self.slots.schema)

    @cached_property
    def visible_rows(self) -> Bitmap | None:
        """The generation's rows that still count; None: all of them."""
        return None if self.hidden is None else Bitmap.of_mask(~self.hidden)

    @cached_property
    def visible_chunks(self) -> Bitmap | None:
        if self.hidden is None or self.generation is None:
            return None
        return self.generation.chunks_of(~self.hidden)


class FreshDocuments:
    """The fresh documents of one table. Whoever writes is alone; views may be read by any thread."""

    def __init__(
        self, searchable: Searchable, *, floor: int = 0, max_documents: int = MAX_DOCUMENTS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.searchable = searchable
        self.floor = floor
        """Complete from here: a generation that ends before cannot be joined with it."""
        self.head = floor
        """Complete up to here."""
        self.bytes = 0
        self._max_documents = max_documents
        self._max_bytes = max_bytes
        self._newest: dict[Key, _Newest] = {}
        self._written = 0
        self._slots = self._new_slots()

    def __len__(self) -> int:
        """Documents that are kept, those known to be deleted included."""
        return len(self._newest)

    def prepare(self, changes: Iterable[DocumentChange]) -> PreparedChanges:
        """Cut and embed what is new. It changes nothing here, and any thread may call it."""
        newest: dict[Key, DocumentChange] = {}
        for change in changes:
            if change.key not in newest or change.position >= newest[change.key].position:
                newest[change.key] = change
        written = [(change, change.row) for change in newest.values() if change.row is not None]
        pieces = self.searchable.in_pieces([row for _, row in written])
        documents = (
            FreshDocument(change.position, change.key, row, cut)
            for (change, row), cut in zip(written, pieces, strict=True)
        )
        return PreparedChanges(tuple(documents), tuple(change for change in newest.values() if change.row is None))

    def apply(self, prepared: PreparedChanges, upto: int, after: FreshView | None = None) -> FreshView | None:
        """Take over all changes up to this position, and return the view that follows `after`. Twice is like once.

        Raises `FreshFull` when there is no room, and then nothing has changed.
        """
        documents = [document for document in prepared.documents if self._is_newer(document.key, document.position)]
        deleted = [change for change in prepared.deleted if self._is_newer(change.key, change.position)]
        self._must_have_room(documents, deleted)
        slots = self._slots
        for document in documents:
            self._forget(document.key)
            self._newest[document.key] = _Newest(document.position, self._slots.add(document))
            self._written += 1
            self.bytes += document.bytes
        for change in deleted:
            self._forget(change.key)
            self._newest[change.key] = _Newest(change.position, None)
        self.head = max(self.head, upto)
        self._sweep()
        if after is None:
            return None
        if after.slots is not slots or self._slots is not slots:
            return self.view(after.generation)
        return self._next(after, [*(document.key for document in documents), *(change.key for change in deleted)])

    def view(self, generation: Generation | None) -> FreshView:
        """All that counts beside this generation."""
        watermark = 0 if generation is None else generation.watermark
        if watermark < self.floor:
            raise FreshGap(
                f"the generation ends at {watermark} and fresh documents are kept from {self.floor}",
                hint="read the table's events again from there",
            )
        counting = {key: newest for key, newest in self._newest.items() if newest.position >= watermark}
        live = np.zeros(len(self._slots.documents), np.bool_)
        live[[newest.slot for newest in counting.values() if newest.slot is not None]] = True
        return FreshView(
            generation, self._slots, live, self._hidden(generation, None, list(counting)), max(self.head, watermark)
        )

    def trim(self, floor: int) -> None:
        """Forget what is below this position: no generation that ends before will be served again."""
        if floor <= self.floor:
            return
        self.floor = floor
        self.head = max(self.head, floor)
        for key in [key for key, newest in self._newest.items() if newest.position < floor]:
            self._forget(key)
        self._sweep()

    def _next(self, after: FreshView, changed: Sequence[Key]) -> FreshView:
        """The view `after`, and what changed: without looking at all the others."""
        generation = after.generation
        watermark = 0 if generation is None else generation.watermark
        counting = [(key, self._newest[key]) for key in changed if self._newest[key].position >= watermark]
        head = max(self.head, watermark)
        live = np.zeros(len(self._slots.documents), np.bool_)
        live[: len(after.live)] = after.live
        gone = [slot for slot in self._replaced if slot < len(live)]
        live[gone] = False
        self._replaced.clear()
        live[[newest.slot for _, newest in counting if newest.slot is not None]] = True
        hidden = self._hidden(generation, after.hidden, [key for key, _ in counting])
        return FreshView(generation, self._slots, live, hidden, head)

    def _hidden(self, generation: Generation | None, before: Mask | None, keys: Sequence[Key]) -> Mask | None:
        rows = np.empty(0, np.int64) if generation is None else generation.rows_of(keys)
        if generation is None or not len(rows):
            return before
        hidden = np.zeros(generation.rows, np.bool_) if before is None else before.copy()
        hidden[rows] = True
        return hidden

    def _is_newer(self, key: Key, position: int) -> bool:
        known = self._newest.get(key)
        return position >= self.floor and (known is None or position > known.position)

    def _must_have_room(self, documents: Sequence[FreshDocument], deleted: Sequence[DocumentChange]) -> None:
        keys = {*(document.key for document in documents), *(change.key for change in deleted)}
        count = len(self._newest) + len(keys - self._newest.keys())
        size = self.bytes + sum(document.bytes for document in documents)
        if count > self._max_documents or size > self._max_bytes:
            raise FreshFull(
                f"{count} documents ({size >> 20} MB) of {self.searchable.table} are newer than its generation",
                hint="build an artifact of the table: frazil build",
                retry_after_seconds=10.0,
            )

    def _forget(self, key: Key) -> None:
        known = self._newest.pop(key, None)
        if known is not None and known.slot is not None:
            self._written -= 1
            self.bytes -= self._slots.documents[known.slot].bytes
            self._replaced.append(known.slot)

    def _sweep(self) -> None:
        """Move what counts to new slots, once more than half does not: each document is moved once on average."""
        if len(self._slots.documents) <= 2 * self._written + _SWEPT_FROM:
            return
        old, self._slots = self._slots, self._new_slots()
        for key, newest in self._newest.items():
            if newest.slot is not None:
                self._newest[key] = _Newest(newest.position, self._slots.add(old.documents[newest.slot]))

    def _new_slots(self) -> FreshSlots:
        self._replaced: list[int] = []
        """Slots that count no more, since the last view."""
        return FreshSlots(self.searchable)
