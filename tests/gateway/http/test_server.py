"""The gateway on a real port: what only a real connection shows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import ByteSize

from frazil.access import AccessControl
from frazil.bus.memory import MemoryBus
from frazil.errors import Misconfigured
from frazil.gateway.http import listen, serve
from frazil.lake.catalog import Lake
from frazil.runtime import assemble_gateway
from frazil.settings import IngestSettings
from frazil.storage import Journal
from tests.gateway.http.harness import ORDERS, TOKEN, event, on_the_bus


@asynccontextmanager
async def served(
    bus: MemoryBus, lake: Lake, folder: Path, *, stop: asyncio.Event | None, drain_seconds: float = 10
) -> AsyncIterator[tuple[httpx.AsyncClient, asyncio.Task[None]]]:
    limited = IngestSettings(max_body_bytes=ByteSize(5000))
    access = AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=folder / "audit")
    gateway = assemble_gateway(bus=bus, lake=lake, journal=Journal(folder / "journal"), access=access, ingest=limited)
    listening = listen("127.0.0.1", 0)
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(gateway, listening, stop=stop, drain_seconds=drain_seconds, on_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 30)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30) as http:
        assert (await http.post("/v1/tables", json=ORDERS)).status_code == 201
        yield http, serving
    if stop is not None:
        stop.set()
    await asyncio.wait_for(serving, 30)


async def test_a_stop_answers_those_in_flight(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """Whoever waits for a commit gets the receipt; the process ends without waiting for the full time-out."""
    stop = asyncio.Event()
    async with served(memory_bus, lake, tmp_path, stop=stop) as (http, serving):
        body = {"events": [event("a")]}
        waiting = asyncio.create_task(http.post("/v1/tables/orders/events?wait=visible&timeout_s=300", json=body))
        while (await on_the_bus(memory_bus, lake)).num_rows == 0:
            await asyncio.sleep(0.01)
        stop.set()
        answer = await waiting
        assert answer.status_code == 504
        assert answer.json()["error"]["details"]["receipt"]["accepted"] == 1
        await asyncio.wait_for(serving, 30)
        with pytest.raises(httpx.TransportError):
            await http.get("/v1/health")


async def test_a_stop_tells_those_it_does_not_wait_for(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with served(memory_bus, lake, tmp_path, stop=stop, drain_seconds=1) as (http, serving):
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        head = f"POST /v1/tables HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n"
        writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b" 100 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        stop.set()
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 503")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "stopping"
        await asyncio.wait_for(serving, 30)
        writer.close()


async def test_sigterm_stops_it(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with served(memory_bus, lake, tmp_path, stop=None) as (http, serving):
        assert (await http.get("/v1/health")).status_code == 200
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.shield(serving), 30)


async def test_requests_that_lie_about_their_length(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with served(memory_bus, lake, tmp_path, stop=asyncio.Event()) as (http, _):

        async def spoken(text: str, *, leave: bool = False) -> bytes:
            reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
            head = f"POST /v1/tables/orders/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            writer.write((head + "Content-Type: application/x-ndjson\r\n" + text).encode())
            if leave:
                writer.close()
                return b""
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            writer.close()
            return answer

        refused = await spoken("Content-Length: 999999999\r\n\r\n")
        assert b" 413 " in refused, "before the body"
        chunk = "1000\r\n" + "x" * 4096 + "\r\n"
        assert b" 413 " in await spoken(f"Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}")
        assert b" 400 " in await spoken("Content-Length: -1\r\n\r\n")
        large = await http.post("/v1/tables/orders/events", content=b"x" * (20 << 20))
        assert large.status_code == 413, "also for who sends all of it before looking"
        await spoken('Content-Length: 4000\r\n\r\n{"id": "half"', leave=True)
        answer = await http.post("/v1/tables/orders/events", json={"events": [event("whole")]})
        assert answer.status_code == 202
        assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["whole"]


def test_no_answer_waits_for_the_acknowledgement_of_its_headers() -> None:
    with listen("127.0.0.1", 0) as listening:
        listening.setblocking(True)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_or_cannot_be() -> None:
    with listen("127.0.0.1", 0) as taken:
        with pytest.raises(Misconfigured) as refused:
            listen("127.0.0.1", taken.getsockname()[1])
        assert refused.value.code == "port_taken"
        assert "--port" in refused.value.hint
    with pytest.raises(Misconfigured) as refused:
        listen("203.0.113.1", 0)
    assert refused.value.code == "cannot_listen"
