from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from frazil.bus import EventBus, open_bus
from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake
from tests.contract.servers import NatsServer, running_nats
from tests.gateway.http.harness import Running, running

STREAM_BYTES = 64 << 20


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of connections run on the event loop of `frazil serve gateway`."""
    if item.path.name == "test_edge.py":
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with running_nats() as server:
        yield server


@pytest.fixture
async def nats_bus(nats_server: NatsServer) -> AsyncIterator[EventBus]:
    bus = await open_bus(nats_server.url, credentials=nats_server.credentials, max_bytes=STREAM_BYTES)
    yield bus
    for name in await bus.names():
        await bus.delete(name)
    await bus.close()


@pytest.fixture
def memory_bus() -> MemoryBus:
    return MemoryBus(max_bytes=STREAM_BYTES)


@pytest.fixture(params=["memory", "nats"])
def bus(request: pytest.FixtureRequest) -> EventBus:
    """Both, for what must hold on the real one and is quick."""
    found: EventBus = request.getfixturevalue(f"{request.param}_bus")
    return found


@pytest.fixture
async def gateway(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway on the bus in memory, with the table `orders`."""
    async with running(memory_bus, lake, tmp_path) as started:
        await started.declare()
        yield started
