"""A gateway on a real port, and clients that hold their connection in their own hands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from frazil.access import AccessControl, AccessSettings
from frazil.bus import EventBus
from frazil.gateway.http import listen, serve
from frazil.lake.catalog import Lake
from frazil.runtime import assemble_gateway
from frazil.serving.sql import QueryPool
from frazil.settings import IngestSettings
from frazil.storage import Journal
from tests.gateway.http.harness import TOKEN, Running


@dataclass
class Client:
    """One connection on which one request was begun."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        line = await asyncio.wait_for(self.reader.readline(), 30)
        return int(line.split()[1])

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of the answer."""
        status = await self.status()
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)).decode()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))}
        body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), 30)
        return status, headers, json.loads(body)

    def has_answer(self) -> bool:
        return bool(self.reader._buffer)  # type: ignore[attr-defined]

    def hang_up(self, *, abrupt: bool = False) -> None:
        if abrupt:
            self.writer.transport.abort()
        else:
            self.writer.close()


@dataclass
class Port(Running):
    number: int = 0

    async def begin(
        self,
        line: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        announced: int | None = None,
    ) -> Client:
        """Send a request, or of its body only what is given."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        length = len(body) if announced is None else announced
        lines = [f"{line} HTTP/1.1", "Host: x", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return Client(reader, writer)


@asynccontextmanager
async def on_a_port(
    bus: EventBus,
    lake: Lake,
    folder: Path,
    *,
    pool: QueryPool | None = None,
    access: AccessSettings | None = None,
    **settings: Any,
) -> AsyncIterator[Port]:
    gateway = assemble_gateway(
        bus=bus,
        lake=lake,
        journal=Journal(folder / "journal"),
        access=AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=folder / "audit", settings=access),
        ingest=IngestSettings(**settings),
        pool=pool,
    )
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    stop, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(gateway, listening, stop=stop, drain_seconds=5, on_ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), 60)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            yield Port(gateway, http, port)
    finally:
        stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(serving, 60)


async def until(reached: Callable[[], bool], seconds: float = 30.0) -> float:
    """Wait for something to be so; how long that took."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)
    return time.monotonic() - started
