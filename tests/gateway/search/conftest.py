from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from frazil.bus import EventBus, open_bus
from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake
from tests.contract.servers import NatsServer, running_nats
from tests.gateway.search.place import Place


@pytest.fixture
async def place(lake: Lake, tmp_path: Path) -> Place:
    """A searched table without artifacts, on a bus in memory."""
    made = Place(tmp_path, lake, MemoryBus())
    await made.declare()
    return made


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with running_nats() as server:
        yield server


@pytest.fixture
async def nats_bus(nats_server: NatsServer) -> AsyncIterator[EventBus]:
    bus = await open_bus(nats_server.url, credentials=nats_server.credentials, max_bytes=64 << 20)
    yield bus
    for name in await bus.names():
        await bus.delete(name)
    await bus.close()
