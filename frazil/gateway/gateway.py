"""Gateway: the parts that the routes need, as one object without HTTP; `frazil.runtime` builds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from frazil.access import AccessControl, QuotaPlace, Quotas, shared_mask_salt
from frazil.bus import EventBus
from frazil.errors import Conflict, FrazilError, Unavailable, VisibilityTimeout
from frazil.events import Mark
from frazil.events.declaration import Partition, PartitionKey, TableSpec, parse_table
from frazil.events.decoding import NDJSON, Limits, decode_events
from frazil.gateway.ingest.partition_budget import PartitionBudget
from frazil.gateway.ingest.receipt import PreparedEvents, Receipt
from frazil.gateway.ingest.table_writers import TableWriters
from frazil.gateway.metrics import Metrics
from frazil.gateway.query.queries import Queries
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.gateway.settings import IngestSettings
from frazil.gateway.threads import DecodeThreads
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake, LakeTable, snapshot_with
from frazil.serving.sql import QueryPool
from frazil.storage import Journal
from frazil.tables import (
    SchemaMoved,
    TableDirectory,
    TableReplaced,
    TableStatus,
    check_reached,
    until_committed,
)

if TYPE_CHECKING:
    from frazil.gateway.search.searches import Searches

log = logging.getLogger(__name__)

# Larger bodies are decoded in a thread: the loop answers others meanwhile.
INLINE_BODY_BYTES = 256 << 10
INLINE_MEMORY_BYTES = 8 << 20
"""What decoding a body in the loop may take of memory [usual bodies of 256 kB: 4 MB and 20 ms]. A body that becomes
more goes to a thread, however small it is [632 bytes of Arrow became 598 MB, and took 7.5 s]."""
WARM_UP_PATIENCE_SECONDS = 5.0
_DECODE_TRIES = 4
_T = TypeVar("_T")
_RETRY_SECONDS = 0.5


class Gateway:
    """Takes in events and answers for the tables. `start` before the first call, `close` after the last."""

    def __init__(
        self,
        *,
        bus: EventBus,
        lake: Lake,
        journal: Journal,
        access: AccessControl,
        ingest: IngestSettings,
        metrics: Metrics,
        directory: TableDirectory,
        writers: TableWriters,
        table_status: TableStatus,
        quotas: Quotas,
        limits: Limits,
        partition_budget: PartitionBudget,
        maintenance: MaintenanceSettings,
        pool: QueryPool | None,
        served: ShelfReaders | None,
        pipeline_file: Path | None,
        uploads: Path | None,
        min_free_bytes: int,
        snapshot_budget: int,
        lag_target_seconds: float,
    ) -> None:
        self.bus = bus
        self.lake = lake
        self.journal = journal
        self.access = access
        self.settings = ingest
        self.metrics = metrics
        self.directory = directory
        self.writers = writers
        self.table_status = table_status
        self.quotas = quotas
        self.limits = limits
        self.maintenance = maintenance
        self.pool = pool
        """The query workers; None for a gateway that only takes in events."""
        self.queries: Queries | None = None
        """None without query workers."""
        self.searches: Searches | None = None
        """None for a gateway that loads no artifacts."""
        self.served = served
        """The open shelves of all searched tables; None for a gateway without search."""
        self.pipeline_file = pipeline_file
        """The status file of the pipeline; None where there is no pipeline on this machine."""
        self.uploads = uploads
        """The folder of uploaded files that wait for their load; None for a gateway that takes none."""
        self.min_free_bytes = min_free_bytes
        """Uploads leave so much of the disk free."""
        self.snapshot_budget = snapshot_budget
        self.lag_target_seconds = lag_target_seconds
        """Events that wait longer for their commit make the pipeline count as degraded."""
        self.started_at = datetime.now(UTC)
        self._partition_budget = partition_budget
        self._decode_threads = DecodeThreads()
        self._rehearsal: asyncio.Task[None] | None = None
        self._pool_starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._rehearsal = asyncio.create_task(asyncio.to_thread(_rehearse), name="rehearse decoding")
        await self.directory.start()
        await self.access.start()
        if self.pool is not None:
            # Events are taken meanwhile; a query that comes sooner waits for the first worker.
            self._pool_starting = asyncio.create_task(self._start_pool(self.pool), name="start the query workers")
            self._pool_starting.add_done_callback(_log_failure)
        self.writers.warm_all()
        if self.served is not None:
            await self.served.start()

    async def _start_pool(self, pool: QueryPool) -> None:
        while True:
            try:
                salt = await asyncio.to_thread(shared_mask_salt, self.lake.registry)
                break
            except Unavailable:  # the catalog is not there yet; no table could be found either
                await asyncio.sleep(_RETRY_SECONDS)
        await pool.start(salt=salt)

    def drain(self) -> None:
        """Nobody waits for commits any longer: those who do get their receipt now."""
        self.directory.release()

    async def close(self) -> None:
        """Finish what is queued and let go. The bus and the lake belong to the caller."""
        self.drain()
        if self.searches is not None:
            self.searches.close()
        if self._rehearsal is not None:
            await self._rehearsal
        if self.pool is not None and self._pool_starting is not None:
            self._pool_starting.cancel()
            await asyncio.wait({self._pool_starting})
            await self.pool.close()
        if self.served is not None:
            await self.served.close()
        await self.writers.close()
        self._decode_threads.close()
        await self.access.close()
        await self.directory.close()

    async def check_filter(self, table: LakeTable, expression: str) -> None:
        """Refuse what is not one condition over the table's columns."""
        if self.pool is None:
            raise Unavailable(
                "this gateway has no query workers to judge a row filter",
                code="no_query_workers",
                hint="create the token through a gateway that answers queries",
                retry_after_seconds=60.0,
            )
        await self.pool.check_filter(expression, self.directory.spec_of(table).row_schema())

    async def ingest(
        self,
        name: str,
        body: bytes,
        content_type: str,
        *,
        urgent: bool,
        place: QuotaPlace,
        check_caller: Callable[[], Awaitable[None]],
    ) -> Receipt:
        """Decode, judge and write the events of one request; the receipt says that they are durable.

        What decoding takes of memory is counted in `place`, until the events are written. `check_caller` raises where
        the caller is gone: a large body that waited for its turn is not decoded for nobody.
        """
        table = await self._open_to_events(name)
        partition = (await self.directory.table(name)).spec.partition
        received_at = datetime.now(UTC)
        try:
            for _ in range(_DECODE_TRIES):
                with place.memory() as memory:
                    limits = replace(self.limits, claim=memory.take)
                    prepared = await self._prepared(
                        name, body, content_type, table.spec, partition, received_at, limits, place, check_caller
                    )
                    try:
                        receipt = await self.writers.of(table).submit(
                            prepared, urgent=urgent, patience_seconds=WARM_UP_PATIENCE_SECONDS
                        )
                        break
                    except (SchemaMoved, TableReplaced):
                        del prepared
                await self.directory.refresh()
                table = await self._open_to_events(name)
            else:
                raise Unavailable("the table changes at every try", code="busy", hint="try again")
        except FrazilError as error:
            self.metrics.rejected(name, error.code)
            raise
        self.metrics.received(name, receipt.accepted, receipt.duplicates)
        return receipt

    async def _open_to_events(self, name: str) -> LakeTable:
        table = await self.directory.fed(name)
        if table.spec.kind == "history" and table.name == name:
            entity = table.token_name.removeprefix("main.")
            raise Conflict(
                f"{table.spec.short_name!r} is the history of {entity!r} and takes no events of its own",
                code="is_a_history",
                hint=f"send them to {entity!r}",
            )
        if not table.spec.is_streamed:
            raise Conflict(
                f"{table.spec.short_name!r} takes no events: only bulk loads write to it",
                code="not_streamed",
                hint="publish to a table of kind log or entity",
            )
        return table

    async def _prepared(
        self,
        name: str,
        body: bytes,
        content_type: str,
        spec: TableSpec,
        partition: Sequence[Partition],
        received_at: datetime,
        limits: Limits,
        place: QuotaPlace,
        check_caller: Callable[[], Awaitable[None]],
    ) -> PreparedEvents:
        def prepare(limits: Limits = limits) -> tuple[PreparedEvents, Sequence[PartitionKey]]:
            decoded = decode_events(
                body, content_type, spec, received_at=received_at, limits=limits, partition=partition
            )
            return PreparedEvents.of(decoded.batch, decoded.spec), decoded.partitions

        try:
            prepared, found = _decode_inline(prepare, len(body), limits)
        except _TooMuchForTheLoop:
            prepared, found = await self._decode_threads.run(place.token_id, prepare, check_caller)
        self._partition_budget.take(name, found)
        return prepared

    async def wait_visible(self, receipt: Receipt, *, timeout_seconds: float) -> int | None:
        """The snapshot that made the request's events visible; raises `VisibilityTimeout` when it takes longer."""
        table, visible = await self.reached(
            receipt.table, Mark(receipt.stream, receipt.position), timeout_seconds=timeout_seconds
        )
        if not visible:
            raise VisibilityTimeout(
                f"the events are safe, but were not committed within {timeout_seconds:g} s",
                hint="try GET /v1/visibility?token=… later; GET /v1/status has the state of the pipeline",
                details={"receipt": receipt.body()},
                retry_after_seconds=1.0,
            )
        return committed_in(table, receipt.position)

    async def check_reached(self, name: str, mark: Mark) -> None:
        """Refuse a mark beyond the head of the table's stream; see `frazil.tables.visibility`."""
        fed = await self.directory.fed(name)
        if fed.spec.is_streamed:
            await check_reached(self.writers.stream_of(fed), fed, mark)

    async def reached(self, name: str, mark: Mark, *, timeout_seconds: float) -> tuple[LakeTable, bool]:
        """Wait until the table is committed up to this mark; the table, and whether it is."""
        fed = await self.directory.fed(name)
        return await until_committed(self.directory, fed.name, mark, timeout_seconds=timeout_seconds)


class _TooMuchForTheLoop(Exception):
    """A body is to be decoded in a thread."""


def _decode_inline(prepare: Callable[[Limits], _T], size: int, limits: Limits) -> _T:
    """Decode a small body at once. Claims of memory come before the work, so that what is too much costs nothing."""
    claimed = 0

    def claim(more: int) -> None:
        nonlocal claimed
        claimed += more
        if claimed > INLINE_MEMORY_BYTES:
            raise _TooMuchForTheLoop

    if size > INLINE_BODY_BYTES:
        raise _TooMuchForTheLoop
    result = prepare(replace(limits, claim=claim))
    limits.claim(claimed)
    return result


def _log_failure(starting: asyncio.Task[None]) -> None:
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.error("query workers not started: %s", error, exc_info=error)


def _rehearse() -> None:
    """Decode one event: it makes pyarrow import what it imports late, a second that no producer should wait for."""
    spec = parse_table({"name": "rehearsal", "columns": {"a": "string", "b": "long", "c": "double"}})
    body = b'{"id": "1", "ts": "2000-01-01T00:00:00Z", "data": {"a": "", "b": 1, "c": 1.5}}'
    decoded = decode_events(body, NDJSON[0], spec, received_at=datetime.now(UTC), limits=Limits())
    PreparedEvents.of(decoded.batch, decoded.spec)


def committed_in(table: LakeTable, position: int) -> int | None:
    """The oldest snapshot still known that has this position, or the current one."""
    found = snapshot_with(table, position)
    return found.snapshot_id if found else table.snapshot_id
