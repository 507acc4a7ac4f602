"""Id judgement: of a group of requests, the events that are new, the duplicates, and the requests in conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from frazil.errors import Conflict
from frazil.events import IS_NEW, Ints, Keys, differing_rows
from frazil.gateway.ingest.original_events import Originals
from frazil.gateway.ingest.receipt import Submission
from frazil.tables import StreamIds

_T = TypeVar("_T")
_MAX_DETAILS = 100
_INLINE_EVENTS = 10_000


@dataclass(frozen=True)
class JudgedGroup:
    """The requests of a group that stand, and the verdict on each of their events, one after the other."""

    submissions: list[Submission]
    keys: Keys
    received: Ints
    verdict: Ints
    starts: Ints
    """Where the events of each submission begin, and at the end how many there are."""

    @property
    def new(self) -> Ints:
        """The indices of the events that count."""
        return np.flatnonzero(self.verdict == IS_NEW)

    def new_batches(self) -> list[pa.RecordBatch]:
        """The events that count, request by request."""
        batches = []
        for number, submission in enumerate(self.submissions):
            counts = self.verdict[self.starts[number] : self.starts[number + 1]] == IS_NEW
            if counts.all():
                batches.append(submission.batch)
            elif counts.any():
                batches.append(submission.batch.filter(pa.array(counts)))
        return batches

    def positions(self, of_new: Ints) -> Ints:
        """Where every event stands in the stream, given where the new ones do."""
        positions = self.verdict.copy()
        positions[self.new] = of_new
        inside = np.flatnonzero(self.verdict < IS_NEW)
        positions[inside] = positions[-2 - self.verdict[inside]]
        return positions

    def already_written(self) -> JudgedGroup:
        """The requests that are known from the bus, every event of them: they need no publish."""
        return self._only([bool((part >= 0).all()) for part in self._parts()])

    def to_write(self) -> JudgedGroup:
        return self._only([not (part >= 0).all() for part in self._parts()])

    def _parts(self) -> list[Ints]:
        return [self.verdict[a:b] for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]

    def _only(self, chosen: list[bool]) -> JudgedGroup:
        """Some of the requests. Those left out repeat nothing but the bus, so that no index into them is left."""
        if all(chosen):
            return self
        sizes = np.diff(self.starts)
        events = np.repeat(np.array(chosen, dtype=bool), sizes)
        moved = np.cumsum(events) - 1
        verdict = self.verdict[events]
        inside = np.flatnonzero(verdict < IS_NEW)
        verdict[inside] = -2 - moved[-2 - verdict[inside]]
        kept = [submission for submission, keep in zip(self.submissions, chosen, strict=True) if keep]
        return JudgedGroup(kept, self.keys[events], self.received[events], verdict, _starts(kept))


async def judge(
    submissions: Sequence[Submission], index: StreamIds, originals: Originals, schema: pa.Schema
) -> JudgedGroup:
    """Judge the group in its order. Requests whose ids belong to other bodies are answered here, with a `Conflict`."""
    standing = list(submissions)
    while True:
        judged = await _off_the_loop(sum(map(len, standing)), partial(_judge_once, standing, index))
        repeats = np.flatnonzero(judged.verdict != IS_NEW)
        if len(repeats) == 0:
            return judged
        wrong = await _contradictions(judged, repeats, originals, schema)
        refused = _refused(judged, wrong)
        if not refused:
            return judged
        standing = [submission for number, submission in enumerate(standing) if number not in refused]


async def _off_the_loop(events: int, work: Callable[[], _T]) -> _T:
    """Do the work here where it is small, and in a thread where the loop would stand still."""
    return work() if events <= _INLINE_EVENTS else await asyncio.to_thread(work)


def _judge_once(submissions: list[Submission], index: StreamIds) -> JudgedGroup:
    empty = np.empty((0, 2), dtype=np.uint64), np.empty(0, dtype=np.int64)
    keys = np.concatenate([empty[0], *(submission.keys for submission in submissions)])
    received = np.concatenate([empty[1], *(submission.received_us for submission in submissions)])
    return JudgedGroup(submissions, keys, received, index.judge(keys, received), _starts(submissions))


def _starts(submissions: Sequence[Submission]) -> Ints:
    return np.cumsum([0, *(len(submission) for submission in submissions)], dtype=np.int64)


async def _contradictions(judged: JudgedGroup, repeats: Ints, originals: Originals, schema: pa.Schema) -> Ints:
    """The indices of the events whose id belongs to another body."""
    events = pa.Table.from_batches([submission.batch for submission in judged.submissions], schema=schema)
    verdict = judged.verdict[repeats]
    inside, outside = repeats[verdict < IS_NEW], repeats[verdict >= 0]
    wrong: list[Ints] = []
    if len(inside):
        first = events.take(pa.array(-2 - judged.verdict[inside]))
        second = events.take(pa.array(inside))
        wrong.append(inside[await _off_the_loop(len(inside), partial(differing_rows, first, second))])
    if len(outside):
        first, answered = await originals.at(judged.verdict[outside])
        outside = outside[answered]
        second = events.take(pa.array(outside))
        wrong.append(outside[await _off_the_loop(len(outside), partial(differing_rows, first, second))])
    return np.sort(np.concatenate(wrong)).astype(np.int64)


def _refused(judged: JudgedGroup, wrong: Ints) -> set[int]:
    """Answer the requests that are wrong for certain; a request that contradicts one of those is judged again."""
    refused: set[int] = set()
    owner = np.searchsorted(judged.starts, wrong, side="right") - 1
    for number in np.unique(owner):
        certain = []
        for event in wrong[owner == number]:
            repeats = int(judged.verdict[event])
            original = int(np.searchsorted(judged.starts, -2 - repeats, side="right")) - 1 if repeats < IS_NEW else -1
            if original not in refused:
                certain.append(int(event - judged.starts[number]))
        if certain:
            refused.add(int(number))
            judged.submissions[number].fail(_conflict(judged.submissions[number], certain))
    return refused


def _conflict(submission: Submission, events: list[int]) -> Conflict:
    ids = submission.batch.column("_id")
    details = [{"index": event, "id": ids[event].as_py()} for event in events[:_MAX_DETAILS]]
    return Conflict(
        f"{len(events):,} of {len(submission):,} events have the id of another event with another body, "
        f"the first: event {details[0]['index']}, id {str(details[0]['id'])[:200]!r}",
        code="id_conflict",
        hint="nothing of this request was kept: give a changed event a new id, or send the same body as the first time",
        details=details,
    )
