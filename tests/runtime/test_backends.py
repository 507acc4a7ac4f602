"""At its start every part asks the bus whether its acks are true."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frazil.errors import Misconfigured
from frazil.runtime import connect_bus
from frazil.settings import Settings, load
from tests.contract.servers import NatsServer, running_nats


def settings_for(nats: NatsServer, folder: Path) -> Settings:
    words = {f"FRAZIL_BUS__{key.upper()}": word for key, word in nats.credentials.items()}
    return load(environment={"FRAZIL_BUS__URL": nats.url, "FRAZIL_DATA_DIR": str(folder), **words})


async def test_a_part_starts_on_a_bus_that_keeps_its_word(tmp_path: Path) -> None:
    with running_nats() as nats:
        bus = await connect_bus(settings_for(nats, tmp_path))
        assert await bus.names() == []
        await bus.close()


async def test_a_part_does_not_start_on_a_bus_that_syncs_later(tmp_path: Path) -> None:
    lazy = running_nats(edit=lambda text: text.replace("sync_interval: always", "sync_interval: 2m"))
    with lazy as nats, pytest.raises(Misconfigured) as refused:
        await connect_bus(settings_for(nats, tmp_path))
    assert "sync_interval: always" in refused.value.hint


async def test_a_part_waits_for_a_bus_that_is_not_there_yet(tmp_path: Path) -> None:
    with running_nats() as nats:
        settings = settings_for(nats, tmp_path)
        nats.kill()
        connecting = asyncio.create_task(connect_bus(settings))
        await asyncio.sleep(0.5)
        assert not connecting.done()
        nats.start()
        bus = await asyncio.wait_for(connecting, 60)
        await bus.close()
