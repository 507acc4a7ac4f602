"""Callers of the NATS bus that are cancelled: no connection, request or subscription of theirs stays behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from frazil.bus import Message
from frazil.bus.nats import NatsBus
from frazil.bus.nats_connection import NatsConnection
from tests.contract.servers import NatsServer, running_nats


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_nats() as running:
        yield running


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    opened = await NatsBus.connect(server.url, credentials=server.credentials, max_bytes=1 << 20)
    yield opened
    await opened.close()


async def test_a_connection_that_is_given_up_is_closed(server: NatsServer) -> None:
    before = _open_sockets()
    for steps in range(60):
        connecting = asyncio.create_task(NatsBus.connect(server.url, credentials=server.credentials, max_bytes=1 << 20))
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait({connecting})
        if not connecting.cancelled():
            await connecting.result().close()
    async with asyncio.timeout(20):
        while _open_sockets() > before:
            await asyncio.sleep(0.01)


async def test_who_gives_up_waiting_leaves_one_subscription_for_all(bus: NatsBus) -> None:
    stream = await bus.create("main.cancelled")
    known = len(bus.reader._client._subs)
    for steps in range(15):
        waits = [asyncio.create_task(stream.wait(0, timeout_seconds=30)) for _ in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
    staying = asyncio.create_task(stream.wait(0, timeout_seconds=30))
    await asyncio.sleep(0.1)
    assert len(bus.reader._client._subs) == known + 1
    assert bus.reader.listeners == [stream._head_watch.interrupted]
    assert await stream.publish([Message(b"a", {})], message_id="1") == 1
    assert await asyncio.wait_for(staying, 20) == 1
    assert bus.reader._in_flight == bus.writer._in_flight == {}
    await bus.delete("main.cancelled")
    assert len(bus.reader._client._subs) == known and bus.reader.listeners == []


async def test_a_link_dials_again_after_whatever_was_raised(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []
    dial = NatsConnection._dial

    async def broken(self: NatsConnection) -> None:
        if len(failures) < 2:
            failures.append(1)
            raise json.JSONDecodeError("no JSON", "", 0)
        await dial(self)

    monkeypatch.setattr(NatsConnection, "_dial", broken)
    await bus.writer._client._close(status=2, do_cbs=True)
    async with asyncio.timeout(20):
        while len(failures) < 2:
            await asyncio.sleep(0.01)
    assert await bus.names() == []


def _open_sockets() -> int:
    def is_socket(link: Path) -> bool:
        try:
            return str(link.readlink()).startswith("socket:")
        except OSError:
            return False

    return sum(is_socket(link) for link in Path("/proc/self/fd").iterdir())
