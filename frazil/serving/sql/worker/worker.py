"""Query worker: a process that answers one request after the other and trusts none of them.

It is forked with everything loaded. It enters its sandbox, reports it, and reads frames until the pool closes the
socket or kills it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from frazil.child_process import die_with_parent
from frazil.errors import FrazilError
from frazil.serving.sql.errors import EngineBroken, OutOfMemory, encode_error
from frazil.serving.sql.frames import Frame, receive_frame, send_frame
from frazil.serving.sql.worker import sandbox
from frazil.serving.sql.worker.duckdb_engine import Engine
from frazil.serving.sql.worker.engine_errors import translated
from frazil.serving.sql.worker.selection import DecodedSelection
from frazil.serving.sql.worker.views import decode_relation

# Part of the memory is for what the engine does not count: Arrow, the encoded answer, the stacks of threads.
_ENGINE_SHARE = 0.6
# A worker whose memory has filled up with what queries left behind is replaced before it fails somebody's query.
_WORN_SHARE = 0.15


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of every worker."""

    rules: sandbox.SandboxRules
    threads: int
    memory_bytes: int


class Worker:
    def __init__(self, engine: Engine, config: WorkerConfig, memory: sandbox.MemoryLimit) -> None:
        self._engine = engine
        self._config = config
        self._memory = memory
        self._answers: dict[str, Callable[[Frame], tuple[dict[str, Any], list[bytes]]]] = {
            "judge": self._judge,
            "filter": self._filter,
            "run": self._run,
            "select": self._select,
            "show": self._show,
        }

    def answer(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to one request. `spent` in it: this worker should get no other request."""
        try:
            sandbox.limit_cpu(float(frame.header["cpu_seconds"]))
            header, buffers = self._answers[frame.header["do"]](frame)
        except (FrazilError, MemoryError, RecursionError) as error:
            failure = translated(error, restricted=True)
            header, buffers = (
                {"error": encode_error(failure), "spent": isinstance(failure, OutOfMemory | EngineBroken)},
                [],
            )
        worn = self._memory.left() < self._config.memory_bytes * _WORN_SHARE
        return {**header, "spent": worn or header.get("spent", False)}, buffers

    def _judge(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        judged = self._engine.judge(frame.header["sql"])
        return {"sql": judged.sql, "tables": [_plain(asdict(table)) for table in judged.tables]}, []

    def _filter(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        columns = [(name, kind) for name, kind in frame.header["columns"]]
        self._engine.check_filter(frame.header["expression"], columns)
        return {}, []

    def _run(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        started = time.perf_counter()
        header = frame.header
        self._take_tails(frame)
        encoded = self._engine.run(
            header["sql"],
            header["parameters"],
            [decode_relation(relation) for relation in header["relations"]],
            format=header["format"],
            max_rows=header["max_rows"],
            max_bytes=header["max_bytes"],
        )
        elapsed_ms = (time.perf_counter() - started) * 1000
        answer = {
            "columns": encoded.columns,
            "row_count": encoded.row_count,
            "truncated": encoded.truncated,
            "elapsed_ms": elapsed_ms,
        }
        return answer, [encoded.body]

    def _select(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        header = frame.header
        rows = pa.ipc.open_stream(frame.buffers[0]).read_all() if header["file"] is None else None
        selection = DecodedSelection.decode(header["selection"])
        return {}, [self._engine.select(selection, int(header["size"]), file=header["file"], rows=rows)]

    def _show(self, frame: Frame) -> tuple[dict[str, Any], list[bytes]]:
        rows = pa.ipc.open_stream(frame.buffers[0]).read_all()
        encoded = self._engine.show(DecodedSelection.decode(frame.header["selection"]), rows)
        return {"truncated": encoded.truncated}, [encoded.body]

    def _take_tails(self, frame: Frame) -> None:
        """Tails come first and stay: the pool counts on having sent them, whatever becomes of the statement."""
        for key in frame.header["forget"]:
            self._engine.forget_tail(key)
        for tail in frame.header["tails"]:
            at = tail["buffer"]
            rows = None if at is None else pa.ipc.open_stream(frame.buffers[at]).read_all()
            self._engine.take_tail(tail["key"], fresh=tail["fresh"], keep_from=tail["keep_from"], rows=rows)


def serve(sock: socket.socket, engine: Engine, config: WorkerConfig, parent: int) -> None:
    """Put up the walls and answer until the pool is gone."""
    die_with_parent(parent)
    memory = sandbox.MemoryLimit()
    standing = sandbox.enter_sandbox(config.rules)
    # Behind the walls, because they hold for the threads that are started after them.
    engine.lock(threads=config.threads, memory_bytes=int(config.memory_bytes * _ENGINE_SHARE))
    memory.put_up(config.memory_bytes)
    worker = Worker(engine, config, memory)
    send_frame(sock, {"ready": standing})
    while (frame := receive_frame(sock)) is not None:
        send_frame(sock, *worker.answer(frame))
        engine.settle()


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    as_of = table["as_of"]
    return {**table, "as_of": as_of.isoformat() if isinstance(as_of, datetime) else None}
