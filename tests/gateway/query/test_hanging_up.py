"""A caller that closes its connection stops its query: on a real port, with a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from frazil.access import Access
from frazil.bus.memory import MemoryBus
from frazil.gateway.http import Gateway, listen, serve
from frazil.gateway.settings import IngestSettings
from frazil.lake import Lake
from frazil.serving import QueryPool, QuerySettings
from frazil.storage import Journal
from tests.gateway.http.harness import TOKEN

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"


async def test_hanging_up_ends_the_query(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    pool = QueryPool(QuerySettings(workers=1), lake.warehouse, readable=[tmp_path / "audit"])
    gateway = Gateway(
        bus=memory_bus,
        lake=lake,
        journal=Journal(tmp_path / "journal"),
        access=Access(registry=lake.registry, admin_token=TOKEN, audit_folder=tmp_path / "audit"),
        ingest=IngestSettings(),
        pool=pool,
    )
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    stop, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(gateway, listening, stop=stop, on_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    try:
        await _until(lambda: pool.status()["ready"] > 0)
        for abrupt in (False, True):
            before = pool.status()["replaced"]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps({"sql": ENDLESS, "timeout_s": 300}).encode()
            head = [
                "POST /v1/query HTTP/1.1",
                "Host: x",
                f"Authorization: Bearer {TOKEN}",
                f"Content-Length: {len(body)}",
            ]
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
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
    finally:
        stop.set()
        await asyncio.wait_for(serving, 60)


async def _until(reached: object, seconds: float = 120.0) -> None:
    assert callable(reached)
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)


@pytest.fixture
def memory_bus() -> MemoryBus:
    return MemoryBus(max_bytes=1 << 20)
