"""The pool of query workers: hands each query to a process of its own, in fair order, and ends it at its deadline."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from frazil.errors import Misconfigured, TooLarge
from frazil.serving.bitmap import Bitmap
from frazil.serving.sql.errors import QueryTimeout, WorkerLost, heard
from frazil.serving.sql.flock import Flock, NurseryGone, WorkerLink
from frazil.serving.sql.frames import BrokenFrame, Frame
from frazil.serving.sql.judged import Judged, judged_from
from frazil.serving.sql.outfit import make_folders, outfit
from frazil.serving.sql.query import Query, Relation, Result, Statement
from frazil.serving.sql.selection import Selection
from frazil.serving.sql.settings import QuerySettings
from frazil.serving.sql.tails import as_stream
from frazil.serving.sql.turns import Turn, Turns
from frazil.serving.sql.views import shown, sql_type
from frazil.storage import Warehouse

_log = logging.getLogger(__name__)
# One more than can be in use, so that a killed worker's successor is ready before it is asked for.
_SPARE = 1
_JUDGE_SECONDS = 10.0
_RETRY_SECONDS = 0.5
# The part of its patience that the pool has with a query while another owner's waits.
_HURRIED = 0.4

_Request = Callable[[WorkerLink], tuple[dict[str, Any], Sequence[bytes]]]


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
        self._turns = Turns(settings)
        self._idle: list[WorkerLink] = []
        self._wanting: deque[asyncio.Future[WorkerLink]] = deque()
        self._links: dict[Turn, WorkerLink] = {}
        self._judged = Judged()
        self._starting: set[asyncio.Task[None]] = set()
        self._replaced = 0
        self._walls: dict[str, str] = {}
        self._closed = True

    async def start(self, *, salt: str | None = None) -> None:
        """Start the nursery and the first workers; returns when one is ready.

        From `salt` those of masked columns are made; left out, their hashes change with every start.
        """
        self._salt = (salt or secrets.token_hex(32)).encode()
        make_folders(self._warehouse, self._readable)
        self._closed = False
        self._flock = self._new_flock()
        await self._flock.start()
        self._keeper = asyncio.create_task(self._keep_nursery())
        first = await self._flock.spawn()
        self._walls = first.walls
        self._check_walls()
        self._give(first)
        self._fill()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        tasks = [*([self._keeper] if self._keeper else []), *self._starting]
        for task in tasks:
            task.cancel()
        self._flock.end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> dict[str, Any]:
        """For health: who works, who waits, which walls stand."""
        alive = 0 if self._closed else len(self._flock.workers)
        return {
            "workers": alive,
            "ready": len(self._idle),
            "busy": self._turns.quick,
            "slow": self._turns.slow,
            "queue": self._turns.waiting,
            "replaced": self._replaced,
            "walls": dict(self._walls),
        }

    async def judge(self, sql: str, *, owner: str, timeout_seconds: float = _JUDGE_SECONDS) -> Statement:
        """The statement, parsed and allowed; raises when it is not. What was judged once is remembered by its text."""
        if (known := self._judged.get(sql)) is not None:
            return known
        frame, _ = await self._ask(owner, timeout_seconds, lambda _: ({"do": "judge", "sql": sql}, ()), 0)
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
        await self._ask("", _JUDGE_SECONDS, lambda _: (request, ()), 0)

    async def run(self, query: Query, relations: Callable[[], Sequence[Relation]]) -> Result:
        """Run a judged statement. `relations` is called when a worker is at hand: the cut is as fresh as can be.

        The time for it all, waiting included, is `timeout_seconds`. Past it, or when the task is cancelled, the worker
        is killed at once.
        """

        def request(worker: WorkerLink) -> tuple[dict[str, Any], Sequence[bytes]]:
            shown_now = relations()
            delivery = worker.tails.delivery(shown_now)
            header = {
                "do": "run",
                "sql": query.sql,
                "parameters": query.parameters,
                "relations": [shown(relation, self._salt_of) for relation in shown_now],
                "format": query.format,
                "max_rows": query.max_rows,
                "max_bytes": query.max_bytes,
                "tails": delivery.tails,
                "forget": delivery.forget,
            }
            return header, delivery.buffers

        frame, queued = await self._ask(query.owner, query.timeout_seconds, request, query.max_bytes)
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
        self, selection: Selection, rows: Path | pa.Table, size: int, *, owner: str, timeout_seconds: float
    ) -> Bitmap:
        """Which rows the selection chooses: of an artifact's DuckDB file, or of these.

        Raises `InvalidInput` for what is not one condition over the columns that the caller sees.
        """
        is_file = isinstance(rows, Path)
        header = {
            "do": "select",
            "selection": selection.told(self._salt_of),
            "file": str(rows) if is_file else None,
            "size": size,
        }
        buffers = () if is_file else (as_stream(rows),)
        frame, _ = await self._ask(owner, timeout_seconds, lambda _: (header, buffers), size)
        try:
            return Bitmap.of_packed(frame.buffers[0], size)
        except (IndexError, ValueError) as error:
            raise _lost() from error

    async def show(
        self, selection: Selection, rows: pa.Table, *, owner: str, timeout_seconds: float
    ) -> list[list[Any]]:
        """These rows as the caller may see them, each behind its place; values as JSON answers have them."""
        header = {"do": "show", "selection": selection.told(self._salt_of)}
        stream = as_stream(rows)
        frame, _ = await self._ask(owner, timeout_seconds, lambda _: (header, (stream,)), 64 << 20)
        try:
            found: list[list[Any]] = msgspec.json.decode(frame.buffers[0], type=list[list[Any]])
        except (IndexError, msgspec.DecodeError) as error:
            raise _lost() from error
        if frame.header.get("truncated"):
            raise TooLarge("the rows are too large for one answer", code="answer_too_large", hint="ask for fewer")
        return found

    async def _ask(self, owner: str, seconds: float, request: _Request, max_bytes: int) -> tuple[Frame, float]:
        """One request to one worker, in turn and in time; the answer, and how long it waited."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        turn = await self._turns.wait(owner, asked + seconds)
        try:
            worker = await self._take(asked + seconds)
            queued = loop.time() - asked
            frame = await self._converse(worker, turn, request, asked + seconds, max_bytes)
        finally:
            moved = self._turns.leave(turn)
            if moved is not None and moved in self._links:
                self._links[moved].slow_down()
            self._fill()
        if "error" in frame.header:
            raise heard(dict(frame.header["error"]))
        return frame, queued

    async def _converse(
        self, worker: WorkerLink, turn: Turn, request: _Request, deadline: float, max_bytes: int
    ) -> Frame:
        loop = asyncio.get_running_loop()
        fit = True
        self._links[turn] = worker
        watch = asyncio.create_task(self._watch(turn, worker))
        try:
            header, buffers = request(worker)
            header["cpu_seconds"] = (deadline - loop.time()) * self._settings.threads
            fit = False
            async with asyncio.timeout_at(deadline):
                frame = await worker.ask(header, buffers, max_bytes)
            fit = not frame.header.get("spent", True) and not turn.slow
            return frame
        except TimeoutError as error:
            raise QueryTimeout(
                "the query took too long and was ended", hint="ask for less, or allow more time"
            ) from error
        except (asyncio.IncompleteReadError, OSError, BrokenFrame) as error:
            _log.warning("a query worker was lost", extra={"pid": worker.pid, "reason": worker.gone or str(error)})
            raise _lost() from error
        finally:
            watch.cancel()
            del self._links[turn]
            if fit and not worker.gone:
                self._give(worker)
            else:
                self._discard(worker)

    async def _watch(self, turn: Turn, worker: WorkerLink) -> None:
        """Move the query to the slow lane in its time: earlier when somebody else waits for the place."""
        patience = self._settings.slow_after_seconds
        await asyncio.sleep(patience * _HURRIED)
        waited = patience * _HURRIED
        while waited < patience and not self._turns.others_wait(turn.owner):
            await asyncio.sleep(patience / 10)
            waited += patience / 10
        if self._turns.move_aside(turn):
            worker.slow_down()
            self._fill()

    async def _take(self, deadline: float) -> WorkerLink:
        """A ready worker. The one used last comes first: it has the tails and the files at hand."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_sound():
                return worker
            # It ended a moment ago, and the news of it is still on its way.
            self._discard(worker)
        wanted: asyncio.Future[WorkerLink] = asyncio.get_running_loop().create_future()
        self._wanting.append(wanted)
        self._fill()
        try:
            async with asyncio.timeout_at(deadline):
                return await wanted
        except (TimeoutError, asyncio.CancelledError) as error:
            if wanted.done() and not wanted.cancelled():
                self._give(wanted.result())
            if isinstance(error, TimeoutError):
                raise QueryTimeout("no worker was ready in time", hint="try again in a moment") from error
            raise

    def _give(self, worker: WorkerLink) -> None:
        while self._wanting:
            wanted = self._wanting.popleft()
            if not wanted.done():
                wanted.set_result(worker)
                return
        if len(self._flock.workers) > self._wanted():
            worker.kill()
        else:
            self._idle.append(worker)

    def _discard(self, worker: WorkerLink) -> None:
        worker.kill()
        self._replaced += 1

    def _on_gone(self, worker: WorkerLink) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._replaced += 1
        self._fill()

    def _fill(self) -> None:
        """Start as many workers as are missing."""
        if self._closed or self._flock.ended.is_set():
            return
        missing = self._wanted() - len(self._flock.workers) - len(self._starting)
        for _ in range(missing):
            task = asyncio.create_task(self._start_worker())
            self._starting.add(task)
            task.add_done_callback(self._started)

    def _wanted(self) -> int:
        return self._settings.workers + self._turns.slow + _SPARE

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        self._fill()

    async def _start_worker(self) -> None:
        try:
            worker = await self._flock.spawn()
        except (NurseryGone, TimeoutError, asyncio.IncompleteReadError, OSError, BrokenFrame, KeyError) as error:
            _log.warning("a query worker did not start", extra={"reason": repr(error)})
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if not worker.gone:
            self._give(worker)

    async def _keep_nursery(self) -> None:
        """Start the nursery again whenever it ends."""
        while True:
            await self._flock.ended.wait()
            _log.warning("the nursery of the query workers ended; starting another one")
            self._flock = self._new_flock()
            try:
                await self._flock.start()
            except Misconfigured as error:
                _log.error("the query workers cannot be started", extra={"reason": str(error.__cause__)})
                await asyncio.sleep(_RETRY_SECONDS)
            self._fill()

    def _salt_of(self, domain: str) -> str:
        """The salt of a domain of hashes. Whoever finds one out learns nothing of the others."""
        return hmac.new(self._salt, domain.encode(), "sha256").hexdigest()

    def _new_flock(self) -> Flock:
        return Flock(
            outfit(self._settings, self._warehouse, self._readable),
            int(self._settings.tail_memory),
            self._on_gone,
        )

    def _check_walls(self) -> None:
        missing = {name: state for name, state in self._walls.items() if not state.startswith("up")}
        if not missing:
            return
        _log.warning("query workers run WITHOUT a part of their walls", extra={"missing": missing})
        if self._settings.require_walls:
            self._closed = True
            if self._keeper is not None:
                self._keeper.cancel()
            self._flock.end()
            raise Misconfigured(
                f"this kernel lacks walls around query workers: {', '.join(missing)}",
                hint="use a Linux kernel with Landlock and seccomp, or set query.require_walls = false",
            )


def _lost() -> WorkerLost:
    return WorkerLost("the query ended without an answer", hint="try again; if it stays, write it in another way")
