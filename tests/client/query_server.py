"""A small HTTP server that answers `/v1/query` as the contract says, with a DuckDB of its own behind it."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa

from frazil.events import Token
from tests.cli.contract_server import ContractServer, Reply, problem

SLOW = "SELECT slow"
"""The server takes a minute for this one, or as long as somebody listens."""


class QueryServer(ContractServer):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.cancelled = threading.Event()
        self.position = 7
        self._engine = duckdb.connect()

    def run(self, sql: str) -> None:
        """Prepare tables for the test."""
        self._engine.execute(sql)

    def facts(self, rows: int, *, truncated: bool) -> dict[str, Any]:
        token = str(Token.of("main.notes", "s", self.position))
        cut = {
            "snapshot_id": 2**62 + 1,
            "committed_at": "2026-11-01T10:00:00Z",
            "watermark": token,
            "token": token,
            "age_seconds": 12.5,
            "live_rows": 3,
        }
        return {
            "row_count": rows,
            "truncated": truncated,
            "token": token,
            "freshness": "live",
            "snapshots": {"notes": cut},
            "elapsed_ms": 1.5,
            "queued_ms": 0.25,
        }

    def query(self, asked: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        self.asked.append(asked)
        with self._engine.cursor() as cursor:
            try:
                found: pa.Table = cursor.execute(asked["sql"], asked.get("parameters")).to_arrow_table()
                types = [str(column[1]) for column in cursor.description or ()]
            except duckdb.Error as error:
                return _told(problem(422, "bad_sql", str(error), hint="correct the statement"))
        kept = found.slice(0, asked.get("max_rows") or 10_000)
        facts = self.facts(kept.num_rows, truncated=kept.num_rows < found.num_rows)
        rows = [[column[i].as_py() for column in kept.columns] for i in range(kept.num_rows)]
        header = {"Frazil-Answer": json.dumps(facts)}
        match asked.get("format", "json"):
            case "arrow":
                return 200, _arrow(kept), header
            case "csv":
                text = io.StringIO()
                csv.writer(text).writerows([kept.column_names, *rows])
                return 200, text.getvalue().encode(), header
            case "ndjson":
                lines = [_json(dict(zip(kept.column_names, row, strict=True))) for row in rows]
                return 200, "".join(f"{line}\n" for line in lines).encode(), header
        columns = [{"name": name, "type": kind} for name, kind in zip(kept.column_names, types, strict=True)]
        return 200, _json({"columns": columns, "rows": rows, **facts}).encode(), {}

    def more(self, method: str, path: str, query: str, body: bytes) -> Reply | None:
        """What the older contract does not know yet."""
        parts = [unquote(part) for part in path.strip("/").split("/")[1:]]
        match method, parts:
            case _, ["tables", name, *_] if name not in self.tables and len(parts) > 2:
                return problem(404, "table_not_found", f"there is no table {name!r}", hint="frazil tables list")
            case "GET", ["tables", name, "history"]:
                snapshot = {
                    "snapshot_id": 2**62 + 1, "parent_id": 5, "committed_at": "2026-11-01T10:00:00Z",
                    "operation": "append", "added_rows": 1234, "total_rows": 5678, "watermark": "fzt1.x",
                    "batch": "b", "current": True,
                }  # fmt: skip
                return 200, {"table": name, "snapshots": [snapshot], "query": query}, {}
            case "GET", ["tables", name, "rows", id, "history"]:
                committed = {"committed_in": 5, "committed_at": "2026-11-01T10:00:00Z"}
                versions = [
                    {"row": {"_id": id, "v": "\x1b[31m1"}, "position": 1, **committed},
                    {"row": {"_id": id, "v": 2}, "position": 2, "committed_in": None, "committed_at": None},
                ]
                return 200, {"table": name, "id": id, "versions": versions, "token": "fzt1.x"}, {}
            case "GET", ["tables", name, "changes"]:
                rows = [{"change": "added", "row": {"v": 1}}, {"change": "removed", "row": {"v": 2}}]
                told = {"table": name, "from": 5, "to": 6, "added": 1, "removed": 1, "rows": rows, "truncated": True}
                return 200, told | {"query": query}, {}
            case "POST", ["tables", name, "export-hint"]:
                commands = {"duckdb": "duckdb -c x", "pyiceberg": "print(1)", "spark": "spark.read"}
                told = {
                    "table": name, "location": "/w/t", "version": 3, "metadata": "/w/t/metadata/v3.metadata.json",
                    "hint_file": "/w/t/metadata/version-hint.text", "commands": commands,
                }  # fmt: skip
                return 200, told, {}
        return None

    def close(self) -> None:
        self._engine.close()


def _told(reply: Reply) -> tuple[int, bytes, dict[str, str]]:
    return reply[0], json.dumps(reply[1]).encode(), reply[2]


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date():
            return value.isoformat()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value


@contextmanager
def serving() -> Iterator[QueryServer]:
    state = QueryServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
        state.close()


def _handler(state: QueryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_all(self) -> None:
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, address.path, {}, body))
            trouble = state.troubles.pop(0) if state.troubles else None
            if trouble == "cut":
                self.close_connection = True
                return
            if isinstance(trouble, tuple):
                self.reply(*_told(trouble))
            elif address.path == "/v1/query" and json.loads(body)["sql"].startswith(SLOW):
                self.wait_until_nobody_listens()
            elif address.path == "/v1/query":
                self.reply(*state.query(json.loads(body)))
            else:
                kind = self.headers.get("Content-Type", "")
                reply = state.more(self.command, address.path, address.query, body)
                self.reply(*_told(reply or state.answer(self.command, address.path, {}, body, kind)))

        def wait_until_nobody_listens(self) -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                ready, _, _ = select.select([self.connection], [], [], 0.05)
                if ready and not self.connection.recv(1, socket.MSG_PEEK):
                    state.cancelled.set()
                    break
            self.close_connection = True

        def reply(self, status: int, raw: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(raw))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_all

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
