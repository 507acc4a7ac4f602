"""A purge deletes a dropped table for good, and one that was cut off is finished by the next."""

from __future__ import annotations

import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict
from frazil.gateway.ingest import purging
from frazil.lake import Lake, begin_purge, plan_purge, repair_catalog
from frazil.lake import purge as lake_purge
from frazil.storage import local_path
from tests.gateway.http.harness import Running, commit, event


class Died(BaseException):
    pass


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


@pytest.mark.parametrize(
    "stop", ["after_purge_began", "after_purge_of_stream", "amid_purge", "amid_purge:4", "before_purge_of_row"]
)
async def test_a_purge_that_was_cut_off_is_finished_by_the_next(
    gateway: Running, memory_bus: MemoryBus, lake: Lake, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    folder, stream = await dropped(gateway, memory_bus, lake)
    point, _, nth = stop.partition(":")
    hits = 0

    def die(reached: str) -> None:
        nonlocal hits
        hits += reached == point
        if hits == int(nth or 1):
            raise Died

    words = {"bus": memory_bus, "lake": lake, "journal": gateway.gateway.journal, "dry_run": False}
    with monkeypatch.context() as patched:
        patched.setattr(lake_purge, "crash_point", die)
        patched.setattr(purging, "crash_point", die)
        with pytest.raises(Died):
            await purging.purge("main.orders", **words)  # type: ignore[arg-type]
    assert lake.dropped() == {}, "nobody can bring back half a table"
    assert len(lake.every_location()) == 1, "it is known that there is work left"
    await purging.purge("main.orders", **words)  # type: ignore[arg-type]
    assert lake.every_location() == {} and not local_path(folder).exists() and stream not in await memory_bus.names()


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
