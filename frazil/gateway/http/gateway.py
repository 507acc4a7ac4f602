"""The gateway as a plain object: everything that the routes need, and nothing of HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from datetime import UTC, datetime
from pathlib import Path

from frazil.bus import EventBus
from frazil.errors import Conflict, FrazilError, Unavailable, VisibilityTimeout
from frazil.events import Mark, TableSpec, parse_table
from frazil.events.decode import NDJSON, Limits, decode_events
from frazil.gateway.ingest import (
    Declarations,
    Prepared,
    Receipt,
    SchemaMoved,
    TableDirectory,
    TableWriters,
)
from frazil.gateway.metrics import Metrics
from frazil.gateway.settings import IngestSettings
from frazil.lake import Lake, LakeTable
from frazil.lake.mend import lost_ranges
from frazil.storage import Journal

log = logging.getLogger(__name__)

# Larger bodies are decoded in a thread: the loop answers others meanwhile.
INLINE_BODY_BYTES = 256 << 10
WARM_UP_PATIENCE_SECONDS = 5.0
_DECODE_TRIES = 4


class Gateway:
    """Takes in events and answers for the tables. `start` before the first call, `close` after the last."""

    def __init__(
        self,
        *,
        bus: EventBus,
        lake: Lake,
        journal: Journal,
        token: str,
        ingest: IngestSettings,
        pipeline_file: Path | None = None,
        spill_folder: Path | None = None,
        directory: TableDirectory | None = None,
    ) -> None:
        self.bus = bus
        self.lake = lake
        self.journal = journal
        self.settings = ingest
        self.pipeline_file = pipeline_file
        """Where the pipeline says how it fares; None where there is no pipeline beside this gateway."""
        self.started_at = datetime.now(UTC)
        self.metrics = Metrics()
        self.directory = directory or TableDirectory(lake)
        self.writers = TableWriters(
            bus=bus,
            directory=self.directory,
            metrics=self.metrics,
            window_seconds=ingest.dedupe_window_hours * 3600,
            spill_folder=spill_folder,
        )
        self.declarations = Declarations(bus=bus, lake=lake, directory=self.directory, journal=journal)
        self.limits = Limits(
            max_body_bytes=int(ingest.max_body_bytes),
            max_event_bytes=int(ingest.max_event_bytes),
            max_events=ingest.max_events,
            max_depth=ingest.max_depth,
            max_fields=ingest.max_fields,
        )
        self._rehearsal: asyncio.Task[None] | None = None
        self._token_digest = hashlib.sha256(token.encode()).digest()

    async def start(self) -> None:
        self._rehearsal = asyncio.create_task(asyncio.to_thread(_rehearse), name="rehearse decoding")
        await self.directory.start()
        self.writers.warm_all()

    def drain(self) -> None:
        """Nobody waits for commits any longer: those who do get their receipt now."""
        self.directory.release()

    async def close(self) -> None:
        """Finish what is queued and let go. The bus and the lake belong to the caller."""
        self.drain()
        if self._rehearsal is not None:
            await self._rehearsal
        await self.writers.close()
        await self.directory.close()

    def knows(self, token: str) -> bool:
        """Whether this is the admin token. Takes the same time for every wrong one."""
        return hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._token_digest)

    async def ingest(self, name: str, body: bytes, content_type: str, *, urgent: bool) -> Receipt:
        """Decode, judge and write the events of one request; the receipt says that they are durable."""
        table = await self.directory.table(name)
        received_at = datetime.now(UTC)
        try:
            for _ in range(_DECODE_TRIES):
                prepared = await self._prepared(body, content_type, table.spec, received_at)
                try:
                    receipt = await self.writers.of(table).submit(
                        prepared, urgent=urgent, patience_seconds=WARM_UP_PATIENCE_SECONDS
                    )
                    break
                except SchemaMoved:
                    await self.directory.refresh()
                    table = await self.directory.table(name)
            else:
                raise Unavailable("the columns of the table change at every try", code="busy", hint="try again")
        except FrazilError as error:
            self.metrics.rejected(name, error.code)
            raise
        self.metrics.received(name, receipt.accepted, receipt.duplicates)
        return receipt

    async def _prepared(self, body: bytes, content_type: str, spec: TableSpec, received_at: datetime) -> Prepared:
        def prepare() -> Prepared:
            decoded = decode_events(body, content_type, spec, received_at=received_at, limits=self.limits)
            return Prepared.of(decoded.batch, decoded.spec)

        return prepare() if len(body) <= INLINE_BODY_BYTES else await asyncio.to_thread(prepare)

    async def wait_visible(self, receipt: Receipt, *, timeout_seconds: float) -> int | None:
        """The snapshot that made the request's events visible; raises `VisibilityTimeout` when it takes longer."""
        table, visible = await self.reached(
            receipt.table, Mark(receipt.stream, receipt.position), timeout_seconds=timeout_seconds
        )
        if not visible:
            raise VisibilityTimeout(
                f"the events are safe, but were not committed within {timeout_seconds:g} s",
                hint="ask GET /v1/visibility?token=… later, and GET /v1/status what the pipeline does",
                details={"receipt": receipt.body()},
                retry_after_seconds=1.0,
            )
        return committed_in(table, receipt.position)

    async def reached(self, name: str, mark: Mark, *, timeout_seconds: float) -> tuple[LakeTable, bool]:
        """Wait until the table is committed up to this mark; the table, and whether it is."""

        def is_reached(table: LakeTable) -> bool:
            if table.stream_identity != mark.stream:
                raise Conflict(
                    f"the token is of another stream than the one that feeds {table.spec.short_name!r} now",
                    code="token_of_another_stream",
                    hint="the bus or the table was replaced since; send the events again with the same ids",
                )
            if any(first <= mark.position <= last for first, last in lost_ranges(table)):
                raise Conflict(
                    f"the events of this token were lost with the bus of {table.spec.short_name!r}",
                    code="events_lost",
                    hint="send them again with the same ids; GET /v1/journal?kind=bus_repaired tells when it happened",
                )
            return table.watermark > mark.position

        return await self.directory.until(name, is_reached, timeout_seconds=timeout_seconds)


def _rehearse() -> None:
    """Decode one event: it makes pyarrow import what it imports late, a second that no producer should wait for."""
    spec = parse_table({"name": "rehearsal", "columns": {"a": "string", "b": "long", "c": "double"}})
    body = b'{"id": "1", "ts": "2000-01-01T00:00:00Z", "data": {"a": "", "b": 1, "c": 1.5}}'
    decoded = decode_events(body, NDJSON[0], spec, received_at=datetime.now(UTC), limits=Limits())
    Prepared.of(decoded.batch, decoded.spec)


def committed_in(table: LakeTable, position: int) -> int | None:
    """The oldest snapshot still known that has this position, or the current one."""
    found = table.snapshot_id
    for snapshot in table.snapshots():
        if snapshot.watermark is not None:
            if snapshot.watermark <= position:
                break
            found = snapshot.snapshot_id
    return found
