"""A purge deletes a dropped table for good, and one that was cut off is finished by the next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.bus import EventBus, open_bus
from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict
from frazil.events.declaration import parse_table
from frazil.gateway import purge as purging
from frazil.lake.catalog import Lake, LakeTable, begin_purge, drop_entity, plan_purge
from frazil.lake.recovery import repair_catalog
from frazil.storage import Journal, local_path
from frazil.tables import create_table
from tests.contract.servers import running_nats
from tests.gateway.http.harness import Running, commit, event
from tests.kills import Address, address, killed_at
from tests.lake.staging import append
from tests.lake_fixtures import events, send


async def dropped(gateway: Running, bus: MemoryBus, lake: Lake) -> tuple[str, str]:
    """Drop `orders` with a row in it; its folder and stream."""
    await gateway.accept([event("a")])
    table = await commit(bus, lake)
    assert (await gateway.http.delete("/v1/tables/orders")).status_code == 200
    return table.iceberg.location(), table.stream


async def test_a_dropped_table_is_deleted_for_good(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    living = await gateway.http.delete("/v1/tables/orders?purge=true")
    assert living.status_code == 404, "what is not dropped is not purged"
    folder, stream = await dropped(gateway, memory_bus, lake)
    await gateway.declare()
    await gateway.accept([event("kept")])

    told = (await gateway.http.delete("/v1/tables/orders?purge=true&dry_run=true")).json()
    assert told["purged"] is False and told["tables"][0]["files"] > 0 and told["tables"][0]["stream"] == stream
    assert local_path(folder).exists() and stream in await memory_bus.names()

    done = (await gateway.http.delete("/v1/tables/orders?purge=true")).json()
    assert done["purged"] is True
    assert not local_path(folder).exists() and stream not in await memory_bus.names()
    assert lake.dropped() == {} and lake.names() == ["main.orders"]
    await commit(memory_bus, lake)
    assert lake.table("main.orders").rows == 1, "the table of the same name is not touched"
    assert [found.state for found in repair_catalog(lake)] == ["already_there"]
    assert (await gateway.http.delete("/v1/tables/orders?purge=true")).status_code == 404
    assert (await gateway.http.delete("/v1/tables/orders?dry_run=true")).status_code == 422


# The address of a bus, and with what it is entered.
Place = tuple[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def nats() -> Iterator[Place]:
    with running_nats() as server:
        yield server.url, dict(server.credentials)


async def _bus(place: Place) -> EventBus:
    url, credentials = place
    return await open_bus(url, credentials=credentials, max_bytes=64 << 20)


async def _declared(bus: EventBus, lake: Lake, **declared: Any) -> LakeTable:
    """A table with a row in it, and an event on its stream."""
    spec = parse_table({"name": "orders", "columns": {"v": "long"}, **declared})
    table = await create_table(bus, lake, spec)
    written = lake.table("main.orders__history") if spec.kind == "entity" else table
    stream = await bus.open(written.stream)
    await send(stream, events(written.spec, ["a"], v=[1]))
    append(lake, written.name, [{"v": 1}])
    return written


async def _purged(there: Address, place: Place, folder: Path) -> None:
    bus = await _bus(place)
    lake = there.open()
    await purging.purge_dropped("main.orders", bus=bus, lake=lake, journal=Journal(folder / "journal"), dry_run=False)
    lake.close()
    await bus.close()


def _purge(*words: Any) -> None:
    asyncio.run(_purged(*words))


@pytest.mark.parametrize("kind", ["log", "entity"])
@pytest.mark.parametrize(
    "stop",
    [
        "after_purge_began",
        "after_purge_of_stream",
        "after_purge_of_artifacts",
        "amid_purge",
        "amid_purge:4",
        "before_purge_of_row",
    ],
)
async def test_a_purge_that_is_killed_is_finished_by_the_next(
    nats: Place, lake: Lake, tmp_path: Path, stop: str, kind: str
) -> None:
    """Beside it a living table of the same name, which has its rows and its stream in the end."""
    bus = await _bus(nats)
    before = set(await bus.names())
    more = {"kind": "entity", "key": ["v"]} if kind == "entity" else {}
    await _declared(bus, lake, **more)
    (drop_entity if kind == "entity" else Lake.drop)(lake, "main.orders")
    living = await _declared(bus, lake)
    hidden = set(lake.every_location()) - {"main.orders"}
    folders = [local_path(lake.every_location()[name].rpartition("/metadata/")[0]) for name in hidden]
    assert len(folders) == (2 if kind == "entity" else 1) and all(folder.exists() for folder in folders)

    await asyncio.to_thread(killed_at, stop, _purge, address(lake), nats, tmp_path)
    assert "main.orders" in lake.every_location() and len(lake.every_location()) >= 2, "there is work left, as is known"
    purged = [name for name in lake.every_location() if name.endswith("-purged")]
    assert len(purged) == 1, "nobody can bring back half a table"
    await _purged(address(lake), nats, tmp_path)
    assert set(lake.every_location()) == {"main.orders"} and not any(folder.exists() for folder in folders)
    assert set(await bus.names()) - before == {living.stream}
    assert lake.table("main.orders").uuid == living.uuid and lake.table("main.orders").rows == 1
    assert await (await bus.open(living.stream)).head() == 1
    await bus.delete(living.stream)
    await bus.close()


async def test_a_table_that_was_brought_back_meanwhile_is_not_purged(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    await dropped(gateway, memory_bus, lake)
    (planned,) = plan_purge(lake, "main.orders")
    lake.undrop("main.orders")
    with pytest.raises(Conflict):
        begin_purge(lake, planned)
    assert lake.table("main.orders").rows == 1


async def test_an_entity_goes_with_its_history(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    declared = {"name": "persons", "kind": "entity", "key": ["id"], "columns": {"id": "long"}}
    assert (await gateway.http.post("/v1/tables", json=declared)).status_code == 201
    folders = [local_path(lake.table(f"main.persons{suffix}").iceberg.location()) for suffix in ("", "__history")]
    stream = lake.table("main.persons__history").stream
    assert (await gateway.http.delete("/v1/tables/persons")).status_code == 200
    done = (await gateway.http.delete("/v1/tables/persons?purge=true")).json()
    assert len(done["tables"]) == 2 and lake.dropped() == {}
    assert not any(folder.exists() for folder in folders) and stream not in await memory_bus.names()
