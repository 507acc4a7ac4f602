"""Query pool: each query runs in a process of its own, in fair order, and is ended at its deadline."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from frazil.errors import Misconfigured, TooLarge, Unavailable
from frazil.serving.bitmap import Bitmap
from frazil.serving.sql.errors import QueryTimeout, WorkerLost, decode_error
from frazil.serving.sql.fair_queue import FairQueue, Slot
from frazil.serving.sql.frames import BrokenFrame, Frame
from frazil.serving.sql.query import Relation, Result, SqlQuery, Statement
from frazil.serving.sql.sent_tails import as_stream
from frazil.serving.sql.settings import QuerySettings
from frazil.serving.sql.stall_clock import StallClock
from frazil.serving.sql.statement_cache import StatementCache, judged_from
from frazil.serving.sql.worker.selection import RowSelection
from frazil.serving.sql.worker.views import encode_relation, sql_type
from frazil.serving.sql.worker_config import fork_server_config, make_folders
from frazil.serving.sql.worker_processes import ForkServerGone, WorkerConnection, WorkerProcesses
from frazil.storage import Warehouse

_log = logging.getLogger(__name__)
# One more than can be in use, so that a killed worker's successor is ready before it is asked for.
_SPARE = 1
_JUDGE_SECONDS = 10.0
_RETRY_SECONDS = 0.5
# The part of its patience that the pool has with a query while another owner's waits.
_HURRIED = 0.4

_Request = Callable[[WorkerConnection], tuple[dict[str, Any], Sequence[bytes]]]


@dataclass(eq=False)
class _Lease:
    """A worker for one query: waited for, then held. The worker goes back when the query leaves, whatever happened."""

    arrived: asyncio.Future[None]
    worker: WorkerConnection | None = None
    is_fit: bool = True
    """Whether the worker can serve another query: it is whole, quick, and in the middle of nothing."""


class QueryPool:
    """Runs judged statements in walled processes.

    `readable` are folders beyond the warehouse that workers may read (the audit log). A query that comes before the
    pool has started waits for its first worker.
    """

    def __init__(self, settings: QuerySettings, warehouse: Warehouse, readable: Sequence[Path] = ()) -> None:
        self._settings = settings
        self._warehouse = warehouse
        self._readable = readable
        self._salt = b""
        self._keeper: asyncio.Task[None] | None = None
        self._queue = FairQueue(settings, self._on_slow)
        self._stall = StallClock()
        self._idle: list[WorkerConnection] = []
        self._leases: dict[Slot, _Lease] = {}
        self._judged = StatementCache()
        self._starting: set[asyncio.Task[None]] = set()
        self._replaced = 0
        self._walls: dict[str, str] = {}
        self._state: Literal["new", "running", "closed"] = "new"
        self._empty_since: float | None = time.monotonic()
        """Since when no worker is there; None while one is."""

    async def start(self, *, salt: str | None = None) -> None:
        """Start the fork server and the first workers; returns when one is ready.

        From `salt` those of masked columns are made; left out, their hashes change with every start.
        """
        self._salt = (salt or secrets.token_hex(32)).encode()
        make_folders(self._warehouse, self._readable)
        try:
            self._processes = await self._new_processes()
            self._state = "running"
            self._keeper = asyncio.create_task(self._keep_fork_server())
            first = await self._first_worker()
            self._walls = first.walls
            self._check_walls()
        except BaseException:
            # Refused, or cancelled half way: nothing of it stays.
            await self.close()
            raise
        self._give(first)
        self._fill()

    async def close(self) -> None:
        """End the workers. A query that still runs or waits fails."""
        was_running, self._state = self._state == "running", "closed"
        for lease in self._leases.values():
            if _is_wanting(lease):
                lease.arrived.set_result(None)
        if not was_running:
            return
        tasks = [*([self._keeper] if self._keeper else []), *self._starting]
        for task in tasks:
            task.cancel()
        self._processes.end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> dict[str, Any]:
        """For health: who works, who waits, which walls stand, and whether queries come to their turn at all."""
        running = [slot.deadline for slot, lease in self._leases.items() if lease.worker is not None]
        return {
            "workers": self._alive(),
            "stopped": sum(worker.is_stopped() for worker in self._processes.workers.values()) if self._alive() else 0,
            "ready": len(self._idle),
            "busy": self._queue.fast,
            "slow": self._queue.slow,
            "queue": self._queue.waiting,
            "replaced": self._replaced,
            "walls": dict(self._walls),
            "stalled_seconds": self._stall.seconds(max(running, default=0.0)),
            "down_seconds": 0.0 if self._empty_since is None else time.monotonic() - self._empty_since,
            "faults": self.faults(),
        }

    def faults(self) -> list[str]:
        """The rules of the accounts that do not hold now; none, unless there is an error in this room."""
        leased = sum(lease.worker is not None and not lease.worker.gone for lease in self._leases.values())
        lost = self._alive() - len(self._idle) - leased - len(self._starting)
        faults = self._queue.faults()
        if self._walls and lost > 0:
            faults.append(f"query workers that belong to nobody: {lost}")
        if self._idle and any(_is_wanting(lease) for lease in self._leases.values()):
            faults.append("a query waits for a worker although one is idle")
        return faults

    async def judge(self, sql: str, *, owner: str, timeout_seconds: float = _JUDGE_SECONDS) -> Statement:
        """The statement, parsed and allowed; raises when it is not. What was judged once is remembered by its text."""
        if (known := self._judged.get(sql)) is not None:
            return known
        frame, _ = await self._request(owner, timeout_seconds, lambda _: ({"do": "judge", "sql": sql}, ()), 0)
        try:
            judged = judged_from(frame.header)
        except (KeyError, TypeError, ValueError) as error:
            raise _lost() from error
        self._judged.keep(sql, judged)
        return judged

    async def check_filter(self, expression: str, columns: pa.Schema) -> None:
        """Raise `InvalidInput` unless this is one boolean expression over these columns and nothing else."""
        listed = [(column.name, sql_type(column.type)) for column in columns]
        request = {"do": "filter", "expression": expression, "columns": listed}
        await self._request("", _JUDGE_SECONDS, lambda _: (request, ()), 0)

    async def run(self, query: SqlQuery, relations: Callable[[], Sequence[Relation]]) -> Result:
        """Run a judged statement. `relations` is called when a worker is at hand: the cut is as fresh as can be.

        The time for it all, waiting included, is `timeout_seconds`. Past it, or when the task is cancelled, the worker
        is killed at once.
        """

        def request(worker: WorkerConnection) -> tuple[dict[str, Any], Sequence[bytes]]:
            shown_now = relations()
            delivery = worker.tails.delivery(shown_now)
            header = {
                "do": "run",
                "sql": query.sql,
                "parameters": query.parameters,
                "relations": [encode_relation(relation, self._salt_of) for relation in shown_now],
                "format": query.format,
                "max_rows": query.max_rows,
                "max_bytes": query.max_bytes,
                "tails": delivery.tails,
                "forget": delivery.forget,
            }
            return header, delivery.buffers

        frame, queued = await self._request(query.owner, query.timeout_seconds, request, query.max_bytes)
        try:
            header = frame.header
            return Result(
                columns=[{"name": str(c["name"]), "type": str(c["type"])} for c in header["columns"]],
                row_count=int(header["row_count"]),
                truncated=bool(header["truncated"]),
                body=frame.buffers[0],
                elapsed_ms=float(header["elapsed_ms"]),
                queued_ms=queued * 1000,
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _lost() from error

    async def select(
        self, selection: RowSelection, rows: Path | pa.Table, size: int, *, owner: str, timeout_seconds: float
    ) -> Bitmap:
        """Which rows the selection chooses: of an artifact's DuckDB file, or of these.

        Raises `InvalidInput` for what is not one condition over the columns that the caller sees.
        """
        is_file = isinstance(rows, Path)
        header = {
            "do": "select",
            "selection": selection.as_json(self._salt_of),
            "file": str(rows) if is_file else None,
            "size": size,
        }
        buffers = () if is_file else (as_stream(rows),)
        frame, _ = await self._request(owner, timeout_seconds, lambda _: (header, buffers), size)
        try:
            return Bitmap.of_packed(frame.buffers[0], size)
        except (IndexError, ValueError) as error:
            raise _lost() from error

    async def show(
        self, selection: RowSelection, rows: pa.Table, *, owner: str, timeout_seconds: float
    ) -> list[list[Any]]:
        """These rows as the caller may see them, each behind its place; values as JSON answers have them."""
        header = {"do": "show", "selection": selection.as_json(self._salt_of)}
        stream = as_stream(rows)
        frame, _ = await self._request(owner, timeout_seconds, lambda _: (header, (stream,)), 64 << 20)
        try:
            found: list[list[Any]] = msgspec.json.decode(frame.buffers[0], type=list[list[Any]])
        except (IndexError, msgspec.DecodeError) as error:
            raise _lost() from error
        if frame.header.get("truncated"):
            raise TooLarge("the rows are too large for one answer", code="answer_too_large", hint="request fewer")
        return found

    async def _request(self, owner: str, seconds: float, request: _Request, max_bytes: int) -> tuple[Frame, float]:
        """One request to one worker, in turn and in time; the answer, and how long it waited."""
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        deadline = begun_at + seconds
        try:
            with self._stall.waiting() as begun:
                async with self._queue.slot(owner, deadline) as slot, self._lease(slot) as lease:
                    begun()
                    queued = loop.time() - begun_at
                    frame = await self._converse(lease, slot, request, max_bytes)
        finally:
            # Not sooner: a slow query that has left needs no worker in its stead.
            self._fill()
        if "error" in frame.header:
            raise decode_error(dict(frame.header["error"]))
        return frame, queued

    @asynccontextmanager
    async def _lease(self, slot: Slot) -> AsyncIterator[_Lease]:
        """A worker for the query that has this slot."""
        lease = self._leases[slot] = _Lease(asyncio.get_running_loop().create_future())
        try:
            self._hand_out()
            self._fill()
            await self._arrived(lease, slot.deadline)
            yield lease
        finally:
            del self._leases[slot]
            if lease.worker is None:
                pass
            elif lease.is_fit and not slot.is_slow and not lease.worker.gone:
                self._give(lease.worker)
            else:
                self._discard(lease.worker)

    async def _arrived(self, lease: _Lease, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                if self._state != "closed":
                    await lease.arrived
        except TimeoutError as error:
            raise QueryTimeout("no worker was ready in time", hint="try again in a moment") from error
        if lease.worker is None:
            raise Unavailable(
                "the query workers of this gateway were ended",
                code="no_query_workers",
                hint="try again, or use another gateway",
            )

    async def _converse(self, lease: _Lease, slot: Slot, request: _Request, max_bytes: int) -> Frame:
        worker = lease.worker
        assert worker is not None
        watch = asyncio.create_task(self._watch(slot))
        try:
            header, buffers = request(worker)
            header["cpu_seconds"] = (slot.deadline - asyncio.get_running_loop().time()) * self._settings.threads
            lease.is_fit = False
            async with asyncio.timeout_at(slot.deadline):
                frame = await worker.request(header, buffers, max_bytes)
            lease.is_fit = not frame.header.get("spent", True)
            return frame
        except TimeoutError as error:
            raise QueryTimeout("the query took too long and was ended", hint="read less, or allow more time") from error
        except (asyncio.IncompleteReadError, OSError, BrokenFrame) as error:
            _log.warning("query worker lost", extra={"pid": worker.pid, "reason": worker.gone or str(error)})
            raise _lost() from error
        finally:
            watch.cancel()

    async def _watch(self, slot: Slot) -> None:
        """Move the query to the slow lane in its time: earlier when somebody else waits for the place."""
        patience = self._settings.slow_after_seconds
        await asyncio.sleep(patience * _HURRIED)
        waited = patience * _HURRIED
        while waited < patience and not self._queue.others_wait(slot.owner):
            await asyncio.sleep(patience / 10)
            waited += patience / 10
        self._queue.move_to_slow_lane(slot)

    def _on_slow(self, slot: Slot) -> None:
        lease = self._leases.get(slot)
        if lease is not None and lease.worker is not None:
            lease.worker.slow_down()
        self._fill()

    def _give(self, worker: WorkerConnection) -> None:
        """A worker is free: for the query that waits longest for one, or for the next."""
        self._idle.append(worker)
        self._hand_out()
        if worker in self._idle and len(self._processes.workers) > self._wanted():
            self._idle.remove(worker)
            worker.kill()
        self._empty_since = None
        self._stall.moved()

    def _hand_out(self) -> None:
        """Idle workers to the queries that wait for one. The one used last is first: it has tails and files at hand."""
        for lease in self._leases.values():
            if _is_wanting(lease):
                lease.worker = self._take_idle()
                if lease.worker is None:
                    return
                lease.arrived.set_result(None)

    def _take_idle(self) -> WorkerConnection | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_sound() and not worker.is_stopped():
                return worker
            # It ended a moment ago, and the report of it is still on its way; or it stands still.
            self._discard(worker)
        return None

    def _discard(self, worker: WorkerConnection) -> None:
        worker.kill()
        self._replaced += 1
        self._stall.moved()
        self._note_workers()

    def _on_gone(self, worker: WorkerConnection) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._replaced += 1
        self._note_workers()
        self._fill()

    def _alive(self) -> int:
        return len(self._processes.workers) if self._state == "running" else 0

    def _note_workers(self) -> None:
        """Note since when there are none; the next that is ready ends that."""
        if not self._alive() and self._empty_since is None:
            self._empty_since = time.monotonic()

    def _fill(self) -> None:
        """Start as many workers as are missing."""
        if self._state != "running" or self._processes.ended.is_set():
            return
        missing = self._wanted() - len(self._processes.workers) - len(self._starting)
        for _ in range(missing):
            task = asyncio.create_task(self._start_worker())
            self._starting.add(task)
            task.add_done_callback(self._started)

    def _wanted(self) -> int:
        return self._settings.workers + self._queue.slow + _SPARE

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        self._fill()

    async def _start_worker(self) -> None:
        try:
            worker = await self._processes.spawn()
        except Exception as error:
            # Whatever it is, the next one is not started at once: it would fail in the same way, without end.
            self._note_workers()
            _log.warning("query worker start failed", extra={"reason": repr(error)})
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if not worker.gone:
            self._give(worker)

    async def _first_worker(self) -> WorkerConnection:
        while True:
            try:
                return await self._processes.spawn()
            except (ForkServerGone, TimeoutError, asyncio.IncompleteReadError, OSError, BrokenFrame, KeyError) as error:
                _log.warning("first query worker start failed", extra={"reason": repr(error)})
                await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_fork_server(self) -> None:
        """Start the fork server again whenever it ends."""
        while True:
            await self._processes.ended.wait()
            _log.warning("fork server ended, starting another")
            try:
                self._processes = await self._new_processes()
            except Exception as error:  # nobody would notice the end of this task: it is the one who starts workers
                _log.error("fork server start failed", extra={"reason": repr(error.__cause__ or error)})
                await asyncio.sleep(_RETRY_SECONDS)
            self._fill()

    def _salt_of(self, domain: str) -> str:
        """The salt of a domain of hashes. Whoever finds one out learns nothing of the others."""
        return hmac.new(self._salt, domain.encode(), "sha256").hexdigest()

    async def _new_processes(self) -> WorkerProcesses:
        processes = WorkerProcesses(
            fork_server_config(self._settings, self._warehouse, self._readable),
            int(self._settings.tail_memory),
            self._on_gone,
        )
        await processes.start()
        return processes

    def _check_walls(self) -> None:
        missing = {name: state for name, state in self._walls.items() if not state.startswith("up")}
        if not missing:
            return
        _log.warning("query worker sandbox incomplete", extra={"missing": missing})
        if self._settings.require_walls:
            raise Misconfigured(
                f"this kernel lacks parts of the sandbox of query workers: {', '.join(missing)}",
                hint="use a Linux kernel with Landlock and seccomp, or set query.require_walls = false",
            )


def _lost() -> WorkerLost:
    return WorkerLost("the query ended without an answer", hint="try again; if it stays, write it in another way")


def _is_wanting(lease: _Lease) -> bool:
    """Whether it waits for a worker; one that is done was cancelled, and leaves in the next step of its task."""
    return lease.worker is None and not lease.arrived.done()
