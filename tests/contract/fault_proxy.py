"""A proxy in front of an S3 server that fails on command: slow, refusing, overloaded, cut off, silent after the deed.

It understands just enough HTTP to see where a request ends. Each request gets a connection of its own to the server, so
that a fault touches this request alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

_T = TypeVar("_T")
_SECONDS = 60.0
_SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
)


class Kind(Enum):
    SLOW = "slow"
    """The answer comes later."""
    SLOW_DOWN = "slow_down"
    """503 SlowDown; the server never sees the request."""
    CUT = "cut"
    """The connection breaks in the middle of the answer."""
    LOSE_REPLY = "lose_reply"
    """The request takes effect, and the connection breaks before a byte of the answer."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str


@dataclass
class Fault:
    """What goes wrong, for which requests, and how often (None: until it is lifted)."""

    kind: Kind
    times: int | None = None
    seconds: float = 0.0
    matches: Callable[[Request], bool] = lambda request: True
    hits: list[Request] = field(default_factory=list)

    def takes(self, request: Request) -> bool:
        if not self.matches(request) or (self.times is not None and len(self.hits) >= self.times):
            return False
        self.hits.append(request)
        return True


class FaultProxy:
    """Runs in a thread of its own; all methods may be called from any other."""

    def __init__(self, port: int) -> None:
        self.requests: list[Request] = []
        self._upstream = port
        self._faults: list[Fault] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self._clients: set[asyncio.StreamWriter] = set()
        self.port = 0
        self._server = self._await(self._listen())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[Fault]:
        self._faults.append(fault)
        try:
            yield fault
        finally:
            self._faults.remove(fault)

    @contextmanager
    def armed(self, fault: Fault) -> Iterator[Callable[[], None]]:
        """Gives a function that lets the fault begin; it is lifted at the end."""
        try:
            yield lambda: self._faults.append(fault)
        finally:
            self._faults = [other for other in self._faults if other is not fault]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self.refuse()
        try:
            yield
        finally:
            self.accept()

    def refuse(self) -> None:
        """Nobody listens any more, and the connections there are break."""
        self._await(self._close())

    def accept(self) -> None:
        self._server = self._await(self._listen())

    def close(self) -> None:
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port, limit=1 << 20)
        self.port = int(server.sockets[0].getsockname()[1])
        return server

    async def _close(self) -> None:
        self._server.close()
        for client in list(self._clients):
            client.transport.abort()
        await self._server.wait_closed()

    def _await(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # one of the two sides went away; the other must notice
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, head, body = await _read_request(reader, writer)
        self.requests.append(request)
        fault = next((fault for fault in self._faults if fault.takes(request)), None)
        kind = fault.kind if fault else None
        if fault and kind is Kind.SLOW:
            await asyncio.sleep(fault.seconds)
        if kind is Kind.SLOW_DOWN:
            head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(_SLOW_DOWN) + _SLOW_DOWN)
            await writer.drain()
            return
        answer = await self._ask(head + body)
        if kind is Kind.LOSE_REPLY:
            writer.transport.abort()
            return
        if kind is Kind.CUT:
            writer.write(answer[: len(answer) // 2])
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(answer)
        await writer.drain()

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Request, bytes, bytes]:
    """The request whole, its head saying that the connection ends after it (so does the answer, passed on as it is)."""
    lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    method, path, _ = lines[0].decode("latin-1").split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    if b"100-continue" in headers.get(b"expect", b"").lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get(b"content-length", 0)))
    kept = [line for line in lines[1:] if line.partition(b":")[0].lower() not in (b"connection", b"expect")]
    head = b"\r\n".join([lines[0], *kept, b"Connection: close", b"", b""])
    return Request(method, path), head, body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    raw = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        raw += size + chunk
        if chunk == b"\r\n":
            return raw


@contextmanager
def running_proxy(port: int) -> Iterator[FaultProxy]:
    proxy = FaultProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
