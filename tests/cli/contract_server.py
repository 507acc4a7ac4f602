"""A small HTTP server that speaks the contract, remembers what it was sent, and fails on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from frazil.events import Token

TOKEN = "frz_" + "t" * 43
Reply = tuple[int, dict[str, Any], dict[str, str]]


class ContractServer:
    """State of the server. `troubles` are consumed one a request: a reply to give, or "cut" / "cut after"."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.plan: dict[str, Any] = {}
        self.dropped: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str, dict[str, list[str]], bytes]] = []
        self.troubles: list[Reply | str] = []
        self.visible = True
        self.status: dict[str, Any] = {"status": "ok", "parts": {}, "tables": {}}
        self.url = ""

    def publish(self, table: str, body: bytes, content_type: str) -> Reply:
        if table not in self.tables:
            return problem(404, "table_not_found", f"no table {table}")
        known = self.events.setdefault(table, {})
        events = decoded(body, content_type)
        bad = [{"index": i, "field": "data", "reason": "is null"} for i, e in enumerate(events) if e["data"] is None]
        if bad:
            return problem(422, "bad_events", "some events are wrong", details=bad)
        before = len(known)
        for event in events:
            known.setdefault(str(event["id"]), json.dumps(event["data"]).encode())
        new = len(known) - before
        token = str(Token.of(f"main.{table}", "stream", len(known)))
        answer = {"table": table, "accepted": len(events), "duplicates": len(events) - new, "token": token}
        return 202, answer, {}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes, content_type: str) -> Reply:
        parts = path.strip("/").split("/")[1:]
        match method, parts:
            case "GET", ["health"]:
                return 200, {"status": "ok", "parts": {"bus": {"status": "ok"}}}, {}
            case "GET", ["status"]:
                return 200, self.status, {}
            case "GET", ["journal"]:
                return 200, {"entries": [{"at": "2026-01-01", "kind": "commit", "table": "main.t", "rows": 5}]}, {}
            case "GET", ["visibility"]:
                return 200, {"visible": self.visible}, {}
            case "GET", ["tables"]:
                found = self.dropped if query.get("dropped") == ["true"] else self.tables
                return 200, {"tables": list(found.values())}, {}
            case "POST", ["tables"]:
                declared = json.loads(body)
                known = self.tables.setdefault(declared["name"], declared)
                return (200 if known is not declared else 201), known, {}
            case "POST", ["tables", name, "events"]:
                status, told, headers = self.publish(name, body, content_type)
                if status == 202 and query.get("wait") == ["visible"]:
                    if not self.visible:
                        return problem(504, "visibility_timeout", "not yet", details={"receipt": told})
                    return 200, {**told, "snapshot_id": 2**60 + 1}, {}
                return status, told, headers
            case "POST", ["tables", name, "undrop"]:
                self.tables[name] = self.dropped.pop(name)
                return 200, self.tables[name], {}
            case "GET", ["tables", name, "dead-letters"]:
                letter = {"position": 2097153, "id": "a", "code": "stage_failed", "reason": "[red]no file holds it"}
                return 200, {"table": name, "total": 2, "dead_letters": [letter]}, {}
            case "POST", ["tables", name, "dead-letters", "resend"]:
                refused = [{"position": 1, "id": "b", "error": {"code": "id_conflict", "message": "it is there"}}]
                return 200, {"table": name, "resent": 1, "left": 1, "refused": refused}, {}
            case "POST", ["tables", name, "dead-letters", "discard"]:
                return 200, {"table": name, "discarded": len(json.loads(body)["positions"]), "left": 0}, {}
            case "POST", ["tables", name, "repair"]:
                return 200, {"table": name, **json.loads(body)}, {}
            case _, ["tables", name] if name not in self.tables:
                return problem(404, "table_not_found", f"no table {name}", hint="frazil tables list")
            case "POST", ["tables", name, "maintenance"]:
                return 200, {"table": name, **self.plan}, {}
            case "GET", ["tables", name, "loads"]:
                return 200, {"loads": self.tables[name]["loads"]}, {}
            case "GET", ["tables", name]:
                return 200, self.tables[name], {}
            case "PATCH", ["tables", name]:
                self.tables[name]["columns"] |= json.loads(body).get("add_columns", {})
                return 200, self.tables[name], {}
            case "DELETE", ["tables", name]:
                self.dropped[name] = self.tables.pop(name)
                return 200, {"name": name, "dropped": True}, {}
        return problem(404, "not_found", path)


def decoded(body: bytes, content_type: str) -> list[dict[str, Any]]:
    if content_type == "application/vnd.apache.arrow.stream":
        import pyarrow as pa

        rows = pa.ipc.open_stream(body).read_all().to_pylist()
        return [{"id": row.pop("id"), "data": {k: str(v) for k, v in row.items()}} for row in rows]
    return [json.loads(line) for line in body.splitlines()]


def problem(status: int, code: str, message: str, *, hint: str = "", details: Any = None, **headers: str) -> Reply:
    error = {"code": code, "message": message, "hint": hint, "details": details}
    return status, {"error": error}, {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def serving() -> Iterator[ContractServer]:
    state = ContractServer()
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


def _handler(state: ContractServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_all(self) -> None:
            address = urlsplit(self.path)
            query = parse_qs(address.query)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, address.path, query, body))
            trouble = state.troubles.pop(0) if state.troubles else None
            if trouble == "cut":
                self.close_connection = True
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" and address.path != "/v1/health":
                trouble = problem(401, "unauthorized", "no token")
            if isinstance(trouble, tuple):
                reply = trouble
            else:
                kind = self.headers.get("Content-Type", "")
                reply = state.answer(self.command, address.path, query, body, kind)
            if trouble == "cut after":
                self.close_connection = True
                return
            status, told, headers = reply
            raw = json.dumps(told).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(raw))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_all

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
