"""A caller that closes its connection stops its query: on a real port, with a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import httpx
import pytest

from frazil.access import AccessControl
from frazil.bus.memory import MemoryBus
from frazil.gateway import Gateway
from frazil.gateway.http import listen, serve
from frazil.gateway.query.row_history import History
from frazil.lake.catalog import Lake
from frazil.runtime import assemble_gateway
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.settings import IngestSettings
from frazil.storage import Journal
from tests.gateway.http.harness import TOKEN

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"


CONNECTIONS = 12
ROUNDS = 150


@asynccontextmanager
async def served(
    bus: MemoryBus, lake: Lake, folder: Path, settings: QuerySettings
) -> AsyncIterator[tuple[Gateway, int]]:
    pool = QueryPool(settings, lake.warehouse, readable=[folder / "audit"])
    gateway = assemble_gateway(
        bus=bus,
        lake=lake,
        journal=Journal(folder / "journal"),
        access=AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=folder / "audit"),
        ingest=IngestSettings(),
        pool=pool,
    )
    listening = listen("127.0.0.1", 0)
    stop, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(gateway, listening, stop=stop, on_ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), 60)
        await _until(lambda: pool.status()["ready"] > 0)
        yield gateway, listening.getsockname()[1]
    finally:
        stop.set()
        await asyncio.wait_for(serving, 60)


async def test_hanging_up_ends_the_query(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with served(memory_bus, lake, tmp_path, QuerySettings(workers=1)) as (gateway, port):
        pool = gateway.pool
        assert pool is not None
        for abrupt in (False, True):
            before = pool.status()["replaced"]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_request(TOKEN, 300))
            await writer.drain()
            await _until(lambda: pool.status()["slow"] == 1)  # it runs, and for a while already
            if abrupt:
                writer.transport.abort()
            else:
                writer.close()
            await _until(lambda: pool.status()["busy"] + pool.status()["slow"] == 0)
            assert pool.status()["replaced"] == before + 1
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            url = f"http://127.0.0.1:{port}/v1/query"
            answer = await http.post(url, json={"sql": "SELECT 1"})
            assert answer.json()["rows"] == [[1]]
            ended = "SELECT count(*) FROM system.audit WHERE outcome = 'cancelled'"
            assert (await http.post(url, json={"sql": ended})).json()["rows"] == [[2]]


async def test_hanging_up_ends_the_reading_of_a_history(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def endless(*_: object, **__: object) -> dict[str, str]:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return {}

    monkeypatch.setattr(History, "row", endless)
    async with served(memory_bus, lake, tmp_path, QuerySettings(workers=1)) as (gateway, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /v1/tables/orders/rows/1/history HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(head.encode())
        await _until(lambda: gateway.quotas.used("requests") == 1)
        writer.close()
        async with asyncio.timeout(60):
            await ended.wait()
        await _until(lambda: gateway.quotas.used("requests") == 0)


async def test_connections_that_are_reset_take_no_place_with_them(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    """One token asks for queries of a second and resets its connections at once, again and again."""
    async with served(memory_bus, lake, tmp_path, QuerySettings(workers=2)) as (gateway, port):
        assert gateway.pool is not None
        base = f"http://127.0.0.1:{port}/v1"
        async with httpx.AsyncClient(base_url=base, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            made = await http.post("/tokens", json={"name": "eve", "grants": ["sql"]})
            assert made.status_code == 201, made.text
            await _reset_again_and_again(port, made.json()["token"])
            answer = await http.post("/query", json={"sql": "SELECT 1"})
            assert (answer.status_code, answer.json().get("rows")) == (200, [[1]])
            await _until(lambda: _is_idle(gateway.pool))
            assert (await http.get("/health")).json()["parts"]["query"]["status"] == "ok"
            assert "\nfrazil_queries_stalled_seconds 0.0\n" in (await http.get(f"http://127.0.0.1:{port}/metrics")).text


async def _reset_again_and_again(port: int, token: str) -> None:
    random = Random(7)
    request = _request(token, 1)
    connections = [_connected(port, request) for _ in range(CONNECTIONS)]
    for _ in range(ROUNDS):
        for _ in range(random.randint(1, CONNECTIONS)):
            connections.pop(random.randrange(CONNECTIONS)).close()
            connections.append(_connected(port, request))
        await asyncio.sleep(random.uniform(0, 0.03))
    for connection in connections:
        connection.close()


def _connected(port: int, request: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    # Closing it is a reset: no farewell, and what was sent and not read yet is gone.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(request)
    return connection


def _request(token: str, seconds: float) -> bytes:
    body = json.dumps({"sql": ENDLESS, "timeout_s": seconds}).encode()
    head = ["POST /v1/query HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def _is_idle(pool: QueryPool | None) -> bool:
    assert pool is not None
    told = pool.status()
    assert told["faults"] == []
    return [told[name] for name in ("busy", "slow", "queue", "ready", "workers")] == [0, 0, 0, 3, 3]


async def _until(reached: object, seconds: float = 120.0) -> None:
    assert callable(reached)
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)


@pytest.fixture
def memory_bus() -> MemoryBus:
    return MemoryBus(max_bytes=1 << 20)
