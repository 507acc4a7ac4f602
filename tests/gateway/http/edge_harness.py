"""A gateway on a port with small limits, raw connections to it, and a neighbour that must not notice them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from frazil.access import AccessControl
from frazil.bus.memory import MemoryBus
from frazil.gateway import Gateway
from frazil.gateway.http import listen, serve
from frazil.lake.catalog import Lake
from frazil.runtime import assemble_gateway
from frazil.settings import IngestSettings, ServerSettings
from frazil.storage import Journal
from tests.gateway.http.harness import ORDERS, TOKEN, event

BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
GET_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE_SECONDS = 30.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


class Raw:
    """One connection that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        """The next answer, whole."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Answer(int(first.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """What comes until the gateway closes; nothing where it resets the connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def is_open(self) -> bool:
        try:
            while await asyncio.wait_for(self.reader.read(1 << 16), 1):
                pass
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        return False

    def close(self) -> None:
        self.writer.close()


@dataclass
class Neighbour:
    """A well-behaved client: health and a receipt in turn, on a connection that stays and on new ones."""

    url: str
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whoever holds it makes the neighbour wait."""

    async def run(self) -> None:
        given: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"authorization": f"Bearer {TOKEN}"},
            "timeout": PATIENCE_SECONDS,
        }
        once = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(**given) as kept, httpx.AsyncClient(**given, limits=once) as fresh:
            while True:
                async with self.turn:
                    await self._ask(kept)
                    await self._ask(fresh)
                await asyncio.sleep(0.01)

    async def _ask(self, http: httpx.AsyncClient) -> None:
        try:
            health = await http.get("/v1/health")
            body = {"events": [event(f"neighbour-{self.answers}")]}
            published = await http.post("/v1/tables/orders/events", json=body)
        except httpx.HTTPError as error:
            self.errors.append(repr(error))
            return
        self.errors += [answer.text for answer in (health, published) if answer.status_code not in (200, 202)]
        self.answers += 1

    async def answered_again(self, more: int = 3) -> None:
        """Wait until it had so many more answers."""
        enough = self.answers + more
        await until(lambda: self.answers >= enough or bool(self.errors))
        assert self.errors == []


@dataclass
class Edge:
    gateway: Gateway
    port: int
    neighbour: Neighbour

    async def connect(self, *, source: str | None = None, receive_bytes: int | None = None) -> Raw:
        plain = socket.socket()
        plain.setblocking(False)
        if receive_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if source is not None:
            plain.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        limit = 1 << 16 if receive_bytes is None else receive_bytes
        return Raw(*await asyncio.open_connection(sock=plain, limit=limit))

    async def ask(self, data: bytes) -> Answer:
        raw = await self.connect()
        raw.send(data)
        try:
            return await raw.answer()
        finally:
            raw.close()

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.metrics.registry.get_sample_value(name, labels) or 0.0

    def connections(self) -> int:
        return int(self.metric("frazil_http_connections"))


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def edge(bus: MemoryBus, lake: Lake, folder: Path, **limits: Any) -> AsyncIterator[Edge]:
    """A gateway on a port whose neighbour asks all the while.

    At the end the neighbour had no error, and connections, tasks and open files are as many as before.
    """
    access = AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=folder / "audit")
    gateway = assemble_gateway(
        bus=bus, lake=lake, journal=Journal(folder / "journal"), access=access, ingest=IngestSettings()
    )
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = ServerSettings(**limits)
    serving = asyncio.create_task(
        serve(gateway, listening, limits=settings, stop=stop, drain_seconds=5, on_ready=ready.set)
    )
    await asyncio.wait_for(ready.wait(), PATIENCE_SECONDS)
    neighbour = Neighbour(url)
    try:
        async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}) as http:
            assert (await http.post("/v1/tables", json=ORDERS)).status_code == 201
            assert (await http.post("/v1/tables/orders/events", json={"events": [event("first")]})).status_code == 202
        found = Edge(gateway, port, neighbour)
        assert (await found.ask(b"GET / HTTP/1.1\r\n\r\n")).status == 200
        assert (await found.ask(b"GET /v1/status HTTP/1.1\r\n\r\n")).status == 401  # opens the audit log
        await until(lambda: found.connections() == 0)
        tasks, files = len(asyncio.all_tasks()), open_files()
        asking = asyncio.create_task(neighbour.run())
        try:
            await neighbour.answered_again()
            yield found
            await neighbour.answered_again()
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        await until(lambda: found.connections() == 0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: open_files() <= files)
    finally:
        stop.set()
        await asyncio.wait_for(serving, PATIENCE_SECONDS)
