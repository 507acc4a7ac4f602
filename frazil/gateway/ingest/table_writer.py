"""Table writer: the events of one table written to the bus, in groups, one after the other, each id once.

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

import numpy as np
import pyarrow as pa

from frazil.bus import HeadMoved, Message
from frazil.crash import crash_point
from frazil.errors import Conflict, FrazilError, NotFound, Unavailable, WatermarkTorn
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
)
from frazil.events.declaration import TableSpec
from frazil.gateway.ingest.id_judgement import JudgedGroup, judge
from frazil.gateway.ingest.original_events import Originals
from frazil.gateway.ingest.receipt import PreparedEvents, Receipt, Submission
from frazil.gateway.metrics import Metrics
from frazil.tables import SchemaMoved, TableStream, WarmStream

log = logging.getLogger(__name__)

GROUP_EVENTS = 50_000
GROUP_BYTES = 4 << 20
PART_BYTES = 6 << 20
_TRIES = 20
# Below this, compressing costs less than handing it to a thread.
_INLINE_BYTES = 64 << 10


class TableWriter:
    """Writes the events of one table to its stream. The stream is closed with it."""

    def __init__(self, stream: TableStream, *, metrics: Metrics) -> None:
        self.stream = stream
        self.name = stream.name
        self._directory = stream.directory
        self._table = stream.table
        self._metrics = metrics
        self._queue: deque[Submission] = deque()
        self._queued = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._behind = False
        """Whether something may be on the bus that the ids of the stream lack."""
        self.last_failure: tuple[float, Unavailable] | None = None
        """When and why the last publish failed; None if it did not."""
        stream.is_about_to_grow = lambda: bool(self._queue)

    async def submit(self, prepared: PreparedEvents, *, urgent: bool, patience_seconds: float) -> Receipt:
        """Write these events, all or none, and return when they are durable.

        Columns that the table lacks are added to it first. Raises `Conflict` for an id with another body, `SchemaMoved`
        when the batch must be decoded again, `Unavailable` when the outcome is unknown or the bus takes nothing.
        """
        try:
            warm = await self.stream.warm(patience_seconds)
        except FrazilError as error:
            raise self._for_the_producer(error) from error
        if self.stream.is_retired:
            # Nobody would write it, and the caller would wait for ever.
            raise self.stream.replaced()
        if self._running is None:
            originals = Originals(warm.stream, self.stream.load_table)
            self._running = asyncio.create_task(self._run(warm, originals), name=f"write {self.name}")
        submission = Submission(prepared, urgent=urgent)
        self._queue.append(submission)
        self._queued.set()
        return await submission.done

    async def _run(self, warm: WarmStream, originals: Originals) -> None:
        while True:
            await self._queued.wait()
            async with self.stream.turn:
                group = self._next_group()
                if not group:
                    self._queued.clear()
                    continue
                try:
                    await self._write(warm, originals, group)
                except FrazilError as error:
                    _fail(group, self._for_the_producer(error))
                except Exception as error:
                    self._behind = True
                    _fail(group, error)
                except BaseException:
                    _fail(group, self.stream.replaced())
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

    async def _write(self, warm: WarmStream, originals: Originals, group: list[Submission]) -> None:
        await self.stream.forget_dead_letters(warm)
        fitting = await self._fitted(group)
        schema = self._table.spec.wire_schema()
        for attempt in range(_TRIES):
            if self._behind:
                await warm.ids.refresh()
                self._behind = False
            judged = await judge(fitting, warm.ids, originals, schema)
            self._answer(judged.already_written(), np.empty(0, dtype=np.int64))
            judged = judged.to_write()
            if not judged.submissions:
                return
            try:
                await self._publish(warm, originals, judged)
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
        self._table = self._directory.known(self.name, self.stream.source) or self._table
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

    async def _publish(self, warm: WarmStream, originals: Originals, judged: JudgedGroup) -> None:
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
            last = await warm.stream.publish(messages, message_id=uuid.uuid4().hex, expected_last=warm.ids.head)
        except Unavailable as error:
            self._behind = error.code != "bus_full"
            self.last_failure = (time.monotonic(), error)
            raise
        self.last_failure = None
        crash_point("after_bus_publish_before_receipt")
        self._metrics.published(
            self._table.token_name, time.monotonic() - started, len(judged.submissions), len(judged.new), size
        )
        first = last - len(messages) + 1
        log.debug("published", extra={"table": self.name, "sequence": first, "events": len(judged.new)})
        sizes = [content.num_rows for content in contents]
        positions = np.concatenate(
            [first_position(first + number) + np.arange(size, dtype=np.int64) for number, size in enumerate(sizes)]
        )
        self._answer(judged, positions)
        new = judged.new
        await warm.ids.add(first, contents, judged.keys[new], positions, judged.received[new])
        with contextlib.suppress(WatermarkTorn):
            warm.ids.backlog(self._table.watermark)
        for number, content in enumerate(contents):
            originals.remember(first + number, content)

    def _answer(self, judged: JudgedGroup, of_new: Ints) -> None:
        positions = judged.positions(of_new)
        for number, submission in enumerate(judged.submissions):
            of_request = slice(judged.starts[number], judged.starts[number + 1])
            accepted = int((judged.verdict[of_request] == -1).sum())
            submission.answer(
                Receipt(
                    table=self._table.token_name,
                    stream=self._table.stream_identity,
                    accepted=accepted,
                    duplicates=len(submission) - accepted,
                    position=int(positions[of_request].max()),
                )
            )

    def _for_the_producer(self, error: FrazilError) -> FrazilError:
        """The same error with what a producer has to know: whether its events are stored, and what to do."""
        if isinstance(error, Unavailable) and error.code == "bus_unavailable":
            return Unavailable(
                f"the bus did not answer, so that these events may be stored or not: {error.message}",
                code="bus_unavailable",
                hint="send the same events with the same ids again: what was stored is counted as a duplicate",
                retry_after_seconds=error.retry_after_seconds,
            )
        return self.stream.with_repair(error)

    async def close(self) -> None:
        """Finish what is queued, then stop; those who come later get `TableReplaced`."""
        self.stream.retire()
        while self._queue and self._running is not None and not self._running.done():
            await asyncio.sleep(0.005)
        await self.stream.close(self._running)
        _fail(list(self._queue), self.stream.replaced())
        self._queue.clear()


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
