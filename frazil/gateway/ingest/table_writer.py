"""The one who writes a table's events to the bus: in groups, one after the other, each id once.

While one group is on its way, the next one gathers: under load many requests share one fsync, and a single request
waits for nobody. Each publish names the head that the judgement was made at, so that whatever another gateway, or a
lost publish of our own, put there since, is read and judged first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from frazil.bus import EventBus, HeadMoved, Message, Stream, StreamMissing
from frazil.crash import crash_point
from frazil.errors import BusGap, BusReplaced, Conflict, FrazilError, NotFound, Unavailable, WatermarkTorn
from frazil.events import (
    ROWS,
    URGENT,
    Ints,
    conform,
    decode,
    encode,
    encode_parts,
    first_position,
    part_headers,
    sequence_of,
)
from frazil.events.declaration import TableSpec, dead_letters_of
from frazil.gateway.ingest.id_judgement import JudgedGroup, judge
from frazil.gateway.ingest.original_events import Originals
from frazil.gateway.ingest.receipt import PreparedEvents, Receipt, Submission
from frazil.gateway.metrics import Metrics
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import dead_positions
from frazil.tables import (
    Backlog,
    LiveTail,
    SchemaMoved,
    StreamIds,
    TableDirectory,
    TableReplaced,
    TailMemory,
    WarmUpProgress,
    source_of,
)

log = logging.getLogger(__name__)

GROUP_EVENTS = 50_000
GROUP_BYTES = 4 << 20
PART_BYTES = 6 << 20
TAIL_BYTES = 256 << 20
_TRIES = 20
_UNKNOWN_SECONDS = 2.0
_MOST_RETRY_SECONDS = 60.0
"""A longer time would be a guess: it is asked for again then, and told with what was read meanwhile."""
# Below this, compressing costs less than handing it to a thread.
_INLINE_BYTES = 64 << 10


@dataclass(frozen=True)
class _Known:
    """What a writer knows once it is warm."""

    stream: Stream
    index: StreamIds
    originals: Originals


class TableWriter:
    """Writes the events of one table, as long as it is fed from one stream."""

    def __init__(
        self,
        table: LakeTable,
        *,
        bus: EventBus,
        directory: TableDirectory,
        metrics: Metrics,
        window_seconds: float,
        spill_folder: Path | None = None,
        warm_up_slots: asyncio.Semaphore | None = None,
        tail_memory: TailMemory | None = None,
    ) -> None:
        self.name = table.name
        self._told_as = table.token_name
        self.source = source_of(table)
        self._table = table
        self._bus = bus
        self._directory = directory
        self._metrics = metrics
        self._window_seconds = window_seconds
        self._spill_folder = spill_folder
        self._slots = warm_up_slots or asyncio.Semaphore(1)
        self._tail_memory = tail_memory or TailMemory(TAIL_BYTES)
        self._queue: deque[Submission] = deque()
        self._something = asyncio.Event()
        self._turn = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._known: _Known | None = None
        self._behind = False
        self._progress: WarmUpProgress | None = None
        """Of the warm-up, while there is one and it has begun."""
        self._closed = False
        self._letters_at: str | None = None
        """The state of the dead letters whose ids are forgotten."""
        self.last_failure: tuple[float, Unavailable] | None = None
        """When and why the last publish failed; None if it did not."""

    async def submit(self, prepared: PreparedEvents, *, urgent: bool, patience_seconds: float) -> Receipt:
        """Write these events, all or none, and return when they are durable.

        Columns that the table lacks are added to it first. Raises `Conflict` for an id with another body, `SchemaMoved`
        when the batch must be decoded again, `Unavailable` when the outcome is unknown or the bus takes nothing.
        """
        await self.warm(patience_seconds)
        if self._closed:
            # Nobody would write it, and the caller would wait for ever.
            raise self._replaced()
        submission = Submission(prepared, urgent=urgent)
        self._queue.append(submission)
        self._something.set()
        return await submission.done

    async def warm(self, patience_seconds: float) -> None:
        """Know the ids of the window, or say that it takes longer."""
        if self._known is not None:
            return
        if self._closed:
            raise self._replaced()
        if self._warming is None or self._warming.done():
            self._warming = asyncio.create_task(self._warm_up(), name=f"warm up {self.name}")
        # By a name of our own: where it fails, the next caller starts another before this one is told.
        warming = self._warming
        done, _ = await asyncio.wait([warming], timeout=patience_seconds)
        if not done:
            raise self._still_warming()
        self._outcome(warming)

    def _still_warming(self) -> Unavailable:
        """With the time that the rest will take, from what was read until now."""
        progress = self._progress
        left = None if progress is None else progress.seconds_left
        told = "" if progress is None or progress.done is None else f", {progress.done:.0%} of them are known"
        return Unavailable(
            f"the event ids of {self._table.spec.short_name!r} are still being read{told}",
            code="warming",
            hint="try again after the time that Retry-After says; nothing of this request was kept",
            retry_after_seconds=_UNKNOWN_SECONDS if left is None else min(max(left, 1.0), _MOST_RETRY_SECONDS),
            details={
                "done": None if progress is None or progress.done is None else round(progress.done, 3),
                "seconds_left": None if left is None else round(left, 1),
            },
        )

    async def _warm_up(self) -> None:
        started = time.monotonic()
        try:
            async with self._slots:
                stream = await open_stream(self._bus, self._table)
                index = await self._read_index(stream)
        except FrazilError as error:
            raise self._for_the_producer(error) from error
        finally:
            self._progress = None
        self._known = _Known(stream, index, Originals(stream, self._load_table))
        self._running = asyncio.create_task(self._run(self._known), name=f"write {self.name}")
        seconds = round(time.monotonic() - started, 3)
        log.info("ready for events", extra={"table": self.name, "ids": len(index), "seconds": seconds})

    async def _read_index(self, stream: Stream) -> StreamIds:
        tail = LiveTail(stream, self._tail_memory)
        index = StreamIds(
            stream,
            self._load_table,
            tail=tail,
            window_seconds=self._window_seconds,
            spill_folder=self._spill_folder,
        )
        self._progress = index.progress
        try:
            await index.refresh()
        except BaseException:
            # All tails share the memory: what a try that failed or was cancelled had read, is no longer there.
            tail.release()
            raise
        return index

    def _load_table(self) -> LakeTable:
        """The table as it is now, if it is still ours. Blocks."""
        table = self._directory.lake.table(self.name)
        if source_of(table) != self.source:
            raise self._replaced()
        return table

    async def _run(self, known: _Known) -> None:
        while True:
            await self._something.wait()
            async with self._turn:
                group = self._next_group()
                if not group:
                    self._something.clear()
                    continue
                try:
                    await self._write(known, group)
                except FrazilError as error:
                    _fail(group, self._for_the_producer(error))
                except Exception as error:
                    self._behind = True
                    _fail(group, error)
                except BaseException:
                    _fail(group, self._replaced())
                    raise

    def _next_group(self) -> list[Submission]:
        group: list[Submission] = []
        events = size = 0
        while self._queue:
            following = self._queue[0]
            events += len(following)
            size += following.batch.nbytes
            if group and (events > GROUP_EVENTS or size > GROUP_BYTES):
                break
            group.append(self._queue.popleft())
        return group

    async def _forget_dead(self, known: _Known) -> None:
        """Let the ids of dead letters count again, as the pipeline does: after repair they are sent again."""
        letters = self._directory.seen(dead_letters_of(self.name))
        if letters is None or letters.metadata_location == self._letters_at:
            return
        dead = await asyncio.to_thread(dead_positions, letters, self._table.stream_identity)
        known.index.forget(np.array(sorted(dead), dtype=np.int64))
        self._letters_at = letters.metadata_location

    def waiting(self) -> Backlog | None:
        """What is known to wait for its commit, without a question to the bus; None while nothing is known."""
        table = self._directory.known(self.name, self.source)
        if self._known is None or table is None:
            return None
        try:
            return self._known.index.backlog(table.watermark)
        except WatermarkTorn:
            return None

    async def _write(self, known: _Known, group: list[Submission]) -> None:
        await self._forget_dead(known)
        fitting = await self._fitted(group)
        schema = self._table.spec.wire_schema()
        for attempt in range(_TRIES):
            if self._behind:
                await known.index.refresh()
                self._behind = False
            judged = await judge(fitting, known.index, known.originals, schema)
            self._answer(judged.already_written(), np.empty(0, dtype=np.int64))
            judged = judged.to_write()
            if not judged.submissions:
                return
            try:
                await self._publish(known, judged)
                return
            except HeadMoved:
                self._behind = True
                fitting = judged.submissions
                await asyncio.sleep(0.001 * attempt)
        raise Unavailable(
            "many gateways write to this table at once", code="busy", hint="try again with the same event ids"
        )

    async def _fitted(self, group: list[Submission]) -> list[Submission]:
        """The group as rows of the table's own columns; columns that only the events have are added to the table."""
        self._table = self._directory.known(self.name, self.source) or self._table
        fitting = []
        for submission in group:
            try:
                await self._grow(submission.spec)
                fitting.append(submission)
            except (Conflict, NotFound) as error:
                submission.fail(SchemaMoved(f"the table changed meanwhile: {error.message}", hint="try again"))
        schema = self._table.spec.wire_schema()
        for submission in fitting:
            if not submission.batch.schema.equals(schema):
                rows = conform(pa.Table.from_batches([submission.batch]), schema).combine_chunks()
                submission.batch = rows.to_batches()[0]
        return fitting

    async def _grow(self, spec: TableSpec) -> None:
        present = self._table.spec.columns
        if spec.columns is present or spec.columns == present:
            return
        lacking = {
            name: column
            for name, column in spec.columns.items()
            if name not in present or not column.type.widens_to(present[name].type)
        }
        if not lacking:
            return
        self._table = await self._directory.alter(self.name, lambda current: current.with_columns(lacking))
        crash_point("after_alter_before_publish")
        log.info("columns added by events", extra={"table": self.name, "columns": sorted(lacking)})

    async def _publish(self, known: _Known, judged: JudgedGroup) -> None:
        batches = judged.new_batches()
        urgent = any(submission.urgent for submission in judged.submissions)
        size = sum(batch.nbytes for batch in batches)
        if size <= _INLINE_BYTES:
            messages, contents = _messages(batches, urgent=urgent)
        else:
            messages, contents = await asyncio.to_thread(_messages, batches, urgent=urgent)
        crash_point("before_bus_publish")
        started = time.monotonic()
        try:
            last = await known.stream.publish(messages, message_id=uuid.uuid4().hex, expected_last=known.index.head)
        except Unavailable as error:
            self._behind = error.code != "bus_full"
            self.last_failure = (time.monotonic(), error)
            raise
        self.last_failure = None
        crash_point("after_bus_publish_before_receipt")
        self._metrics.published(
            self._told_as, time.monotonic() - started, len(judged.submissions), len(judged.new), size
        )
        first = last - len(messages) + 1
        log.debug("published", extra={"table": self.name, "sequence": first, "events": len(judged.new)})
        sizes = [content.num_rows for content in contents]
        positions = np.concatenate(
            [first_position(first + number) + np.arange(size, dtype=np.int64) for number, size in enumerate(sizes)]
        )
        self._answer(judged, positions)
        new = judged.new
        await known.index.add(first, contents, judged.keys[new], positions, judged.received[new])
        with contextlib.suppress(WatermarkTorn):
            known.index.backlog(self._table.watermark)
        for number, content in enumerate(contents):
            known.originals.remember(first + number, content)

    def _answer(self, judged: JudgedGroup, of_new: Ints) -> None:
        positions = judged.positions(of_new)
        for number, submission in enumerate(judged.submissions):
            of_request = slice(judged.starts[number], judged.starts[number + 1])
            accepted = int((judged.verdict[of_request] == -1).sum())
            submission.answer(
                Receipt(
                    table=self._told_as,
                    stream=self._table.stream_identity,
                    accepted=accepted,
                    duplicates=len(submission) - accepted,
                    position=int(positions[of_request].max()),
                )
            )

    def _for_the_producer(self, error: FrazilError) -> FrazilError:
        """The same error in the words of someone who sends events to a table."""
        short = self._table.spec.short_name
        if isinstance(error, Unavailable) and error.code == "bus_unavailable":
            return Unavailable(
                f"the bus did not answer, so that these events may be stored or not: {error.message}",
                code="bus_unavailable",
                hint="send the same events with the same ids again: what was stored is counted as a duplicate",
                retry_after_seconds=error.retry_after_seconds,
            )
        if isinstance(error, StreamMissing):
            return BusReplaced(f"the bus has no stream for {short!r}: it was lost or replaced", hint=_repair(short))
        if isinstance(error, BusGap | BusReplaced):
            error.hint = _repair(short)
        return error

    @property
    def is_warm(self) -> bool:
        return self._known is not None

    async def has_come_to(self, position: int) -> bool:
        """Whether the stream has a message at this position; the bus is asked only if this gateway has not seen it."""
        sequence = sequence_of(position)
        if self._known is not None and sequence <= self._known.index.head:
            return True
        return sequence <= await self.head()

    async def head(self) -> int:
        """The last sequence on the bus."""
        stream = self._known.stream if self._known else await open_stream(self._bus, self._table)
        return await stream.head()

    async def backlog(self, watermark: int, *, patience_seconds: float) -> Backlog | None:
        """What waits for its commit; None when that is not known in time."""
        try:
            await self.warm(patience_seconds)
        except Unavailable:
            return None
        if self._known is None:
            return None
        if not await self._looked(self._known.index, patience_seconds):
            return None
        return self._known.index.backlog(watermark)

    def guess(self) -> tuple[LiveTail, asyncio.Task[int]] | None:
        """The tail as it is known now, and the head of the stream, being asked for: what is written by then may lack.

        None while the tail is not known, or is about to grow by our own hand: then guessing does not pay.
        """
        if self._known is None or self._queue or self._turn.locked():
            return None
        head = asyncio.create_task(self._known.stream.head(), name=f"head of {self.name}")
        head.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # nobody may be left to hear it
        return self._known.index.tail, head

    async def live(self, *, patience_seconds: float) -> LiveTail | None:
        """The tail, with every event in it that has its receipt when this is called; None when that takes longer."""
        give_up_at = time.monotonic() + patience_seconds
        await self.warm(patience_seconds)
        if self._known is None:
            return None
        # The bus is asked even where all writing goes through here: another gateway may have given receipts too.
        head = await self._known.stream.head()
        index = self._known.index
        while index.head < head:
            if not await self._looked(index, give_up_at - time.monotonic()):
                return None
        return index.tail

    async def _looked(self, index: StreamIds, patience_seconds: float) -> bool:
        """Read on to the end of the stream; whether that was done in time."""
        if self._closed:
            raise self._replaced()
        # In a task of its own: giving up on the answer must not break off the reading, which a thread may be doing.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(index), name=f"look at {self.name}")
        looking = self._looking
        done, _ = await asyncio.wait([looking], timeout=max(patience_seconds, 0.0))
        if done:
            self._outcome(looking)
        return bool(done)

    def _outcome(self, task: asyncio.Task[None]) -> None:
        """Raise what the task of the writer failed with. That it was cancelled does not cancel who waited for it."""
        if task.cancelled():
            raise self._replaced()
        task.result()

    async def _look(self, index: StreamIds) -> None:
        async with self._turn:
            if self._known is not None:
                await self._forget_dead(self._known)
            await index.refresh()

    async def close(self) -> None:
        """Finish what is queued, then stop; who comes later is told that the table was replaced."""
        self._closed = True
        while self._queue and self._running is not None and not self._running.done():
            await asyncio.sleep(0.005)
        async with self._turn:
            for task in (self._running, self._warming, self._looking):
                if task is not None:
                    task.cancel()
        if self._known is not None:
            self._known.index.tail.release()
        _fail(list(self._queue), self._replaced())
        self._queue.clear()

    def _replaced(self) -> TableReplaced:
        return TableReplaced(f"{self._table.spec.short_name!r} was just dropped or replaced", hint="try again")


async def open_stream(bus: EventBus, table: LakeTable) -> Stream:
    """The stream that the table is fed from, and no other under its name."""
    short = table.spec.short_name
    hint = _repair(short)
    try:
        stream = await bus.open(table.stream)
    except StreamMissing as error:
        raise BusReplaced(f"the bus has no stream for {short!r}: it was lost or replaced", hint=hint) from error
    if stream.identity != table.stream_identity:
        raise BusReplaced(
            f"the bus has another stream for {short!r} than the one that the table was fed from",
            hint=hint,
            details={"expected": table.stream_identity, "found": stream.identity},
        )
    return stream


def _repair(short_name: str) -> str:
    return f"bring the old bus back, or run `frazil repair bus {short_name}` to see what is lost and go on without it"


def _messages(batches: Sequence[pa.RecordBatch], *, urgent: bool) -> tuple[list[Message], list[pa.Table]]:
    """The messages of a group, and the events in each of them."""
    table = pa.Table.from_batches(batches)
    if table.nbytes <= GROUP_BYTES:
        # One batch of all requests compresses in a third of the time that one of each takes, and to less.
        table = table.combine_chunks()
        bodies = [encode(table.to_batches())]
    else:
        bodies = encode_parts(table, max_bytes=PART_BYTES)
    contents = [table] if len(bodies) == 1 else [decode(body) for body in bodies]
    flag = {URGENT: "1"} if urgent else {}
    headers = part_headers(uuid.uuid4().hex, len(bodies))
    messages = [
        Message(body, {**header, **flag, ROWS: str(content.num_rows)})
        for body, header, content in zip(bodies, headers, contents, strict=True)
    ]
    return messages, contents


def _fail(group: Sequence[Submission], error: Exception) -> None:
    for submission in group:
        submission.fail(error)
