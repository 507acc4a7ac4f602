"""Table writers: one for each table that takes events, bound to the stream that feeds the table now."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from frazil.bus import EventBus
from frazil.errors import FrazilError
from frazil.gateway.ingest.table_writer import TableWriter
from frazil.gateway.metrics import Metrics
from frazil.lake.catalog import LakeTable
from frazil.tables import TAIL_BYTES, Backlog, TableDirectory, TableStream, TailMemory, source_of

log = logging.getLogger(__name__)
_WARM_UPS_AT_A_TIME = 2
_WARM_UP_RETRY_SECONDS = 2.0


class TableWriters:
    def __init__(
        self,
        *,
        bus: EventBus,
        directory: TableDirectory,
        metrics: Metrics,
        window_seconds: float,
        spill_folder: Path | None = None,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._metrics = metrics
        self._window_seconds = window_seconds
        self._spill_folder = spill_folder
        self._slots = asyncio.Semaphore(_WARM_UPS_AT_A_TIME)
        self.tail_memory = TailMemory(tail_bytes)
        self._writers: dict[str, TableWriter] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._warming: asyncio.Task[None] | None = None

    def of(self, table: LakeTable) -> TableWriter:
        """The writer of this table. One of a former table or stream of this name is retired."""
        assert table.spec.is_streamed
        writer = self._writers.get(table.name)
        if writer is not None and writer.stream.source == source_of(table):
            return writer
        if writer is not None:
            self._retire(writer)
        stream = TableStream(
            table,
            bus=self._bus,
            directory=self._directory,
            window_seconds=self._window_seconds,
            spill_folder=self._spill_folder,
            warm_up_slots=self._slots,
            seconds_ahead=self._warm_up_seconds_left,
            tail_memory=self.tail_memory,
        )
        writer = TableWriter(stream, metrics=self._metrics)
        self._writers[table.name] = writer
        return writer

    def stream_of(self, table: LakeTable) -> TableStream:
        """The stream of this table, which its readers share with its writer."""
        return self.of(table).stream

    def failing(self, *, within_seconds: float) -> str | None:
        """Why publishing fails, if it failed so recently that it may still be so."""
        failures = [writer.last_failure for writer in self._writers.values() if writer.last_failure is not None]
        if not failures:
            return None
        at, error = max(failures, key=lambda failure: failure[0])
        return error.message if time.monotonic() - at < within_seconds else None

    def waiting(self) -> dict[str, Backlog]:
        """The backlogs that are known, by table."""
        found = {name: writer.stream.waiting() for name, writer in self._writers.items()}
        return {name: backlog for name, backlog in found.items() if backlog is not None and backlog.events}

    def warming(self, *, longer_than: float) -> dict[str, TableStream]:
        """The tables whose ids have been read for longer than this, or have waited for it."""
        return {
            name: writer.stream for name, writer in self._writers.items() if writer.stream.warming_seconds > longer_than
        }

    def not_warmed(self) -> dict[str, FrazilError]:
        """The tables whose ids could not be read, and why: they take no events."""
        found = {name: writer.stream.warm_up_error for name, writer in self._writers.items()}
        return {name: error for name, error in found.items() if error is not None}

    def follow_soon(self) -> None:
        """Find out what other gateways wrote."""
        for writer in self._writers.values():
            writer.stream.follow_soon()

    def _warm_up_seconds_left(self) -> float | None:
        left = [writer.stream.warm_up_seconds_left for writer in self._writers.values()]
        return max((seconds for seconds in left if seconds is not None), default=None)

    def warm_all(self) -> None:
        """Begin to read the ids of all tables, so that the first request of each finds them known."""
        self._warming = asyncio.create_task(self._warm_all(), name="warm up all tables")

    async def _warm_all(self) -> None:
        """Those that fail are tried again: a bus that is away comes back, and health names them until then."""
        for table in self._directory.tables():
            if table.spec.is_streamed:
                await self._try_to_warm(table.name)
        while True:
            await asyncio.sleep(_WARM_UP_RETRY_SECONDS)
            for name in self.not_warmed():
                await self._try_to_warm(name)

    async def _try_to_warm(self, name: str) -> None:
        try:
            await self.stream_of(await self._directory.fed(name)).warm(patience_seconds=3600)
        except FrazilError as error:
            log.warning("stream warm-up failed: %s", error, extra={"table": name})

    def retire(self, name: str) -> None:
        """Close the writer of a table that was dropped."""
        if writer := self._writers.pop(name, None):
            self._retire(writer)

    def _retire(self, writer: TableWriter) -> None:
        task = asyncio.create_task(writer.close())
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
        writers, self._writers = list(self._writers.values()), {}
        await asyncio.gather(*(writer.close() for writer in writers), *self._retired)
