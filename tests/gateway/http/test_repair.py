"""Repairs: told exactly what is lost, refused without a person's word, consistent and safe to go on from afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.events import first_position
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import Running, commit, event, running, stored_ids


async def repair(gateway: Running, **wanted: Any) -> httpx.Response:
    return await gateway.http.post("/v1/tables/orders/repair", json=wanted)


async def committed_then_more(gateway: Running, bus: EventBus, lake: Lake) -> None:
    """Messages 1 and 2 are committed, 3 and 4 wait on the bus."""
    await gateway.accept([event("a")])
    await gateway.accept([event("b")])
    await commit(bus, lake)
    await gateway.accept([event("c")])
    await gateway.accept([event("d")])


async def test_nothing_to_repair(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await committed_then_more(gateway, memory_bus, lake)
    answer = await repair(gateway, what="bus", accept_loss=True)
    assert (answer.status_code, answer.json()["changed"]) == (200, False)
    await commit(memory_bus, lake)
    assert stored_ids(lake) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("damage", ["missing", "replaced", "end_lost"])
async def test_a_lost_stream(memory_bus: MemoryBus, lake: Lake, tmp_path: Path, damage: str) -> None:
    async with running(memory_bus, lake, tmp_path) as gateway, running(memory_bus, lake, tmp_path) as other:
        await gateway.declare()
        await committed_then_more(gateway, memory_bus, lake)
        lost_token = (await other.accept([event("d")]))["token"]
        stream = lake.table("main.orders").stream
        if damage == "end_lost":
            memory_bus.cut_end(stream, 1)
        else:
            await memory_bus.delete(stream)
        if damage == "replaced":
            await memory_bus.create(stream)
        refused = await repair(gateway, what="bus")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "loss_not_accepted")
        assert refused.json()["error"]["details"]["damage"] == damage
        assert refused.json()["error"]["details"]["lost"]["from_message"] == 3
        assert lake.table("main.orders").stream == stream, "nothing was changed"
        done = await repair(gateway, what="bus", accept_loss=True)
        assert (done.status_code, done.json()["changed"]) == (200, True), done.text
        table = lake.table("main.orders")
        assert table.stream != stream
        assert table.watermark == first_position(3), "consistent: the property and the marked snapshot agree"
        await other.gateway.directory.refresh()
        for each in (gateway, other):
            receipt = await each.accept([event("b"), event("c"), event("d")])
        assert receipt["duplicates"] == 3
        unknown = await gateway.http.get("/v1/visibility", params={"token": lost_token})
        assert unknown.json()["error"]["code"] == "token_of_another_stream"
        await commit(memory_bus, lake)
        assert stored_ids(lake) == ["a", "b", "c", "d"]
        entries = (await gateway.http.get("/v1/journal?kind=bus_repaired")).json()["entries"]
        assert entries[0]["damage"] == damage


async def test_a_gap_is_skipped_and_the_rest_keeps_its_place(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway, running(bus, lake, tmp_path) as other:
        await gateway.declare()
        await gateway.accept([event("a")])
        await other.accept([event("z")])
        await commit(bus, lake)
        lost = await gateway.accept([event("c")])
        kept = await gateway.accept([event("d")])
        stream = await bus.open(lake.table("main.orders").stream)
        await stream.trim(4)
        refused = await repair(gateway, what="bus")
        details = refused.json()["error"]["details"]
        assert (refused.status_code, details["damage"]) == (409, "gap")
        assert (details["lost"]["from_message"], details["lost"]["to_message"]) == (3, 3)
        assert (details["lost"]["from_position"], details["lost"]["to_position"]) == (
            first_position(3),
            first_position(4) - 1,
        )
        done = await repair(gateway, what="bus", accept_loss=True)
        assert done.json()["changed"] is True
        assert lake.table("main.orders").watermark == first_position(4)
        gone = await gateway.http.get("/v1/visibility", params={"token": lost["token"]})
        assert (gone.status_code, gone.json()["error"]["code"]) == (409, "events_lost")
        await other.gateway.directory.refresh()
        receipt = await other.accept([event("c"), event("d"), event("z")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 2), "what was lost may be sent again"
        await commit(bus, lake)
        assert stored_ids(lake) == ["a", "z", "d", "c"]
        await gateway.gateway.directory.refresh()
        visible = await gateway.http.get("/v1/visibility", params={"token": kept["token"]})
        assert visible.json()["visible"] is True


async def test_an_empty_table_is_repaired_too(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.accept([event("a")])
    await memory_bus.delete(lake.table("main.orders").stream)
    assert (await repair(gateway, what="bus", accept_loss=True)).json()["changed"] is True
    assert (await gateway.accept([event("a")]))["accepted"] == 1
    await commit(memory_bus, lake)
    assert stored_ids(lake) == ["a"]


async def test_a_table_rolled_back_by_hand(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.accept([event("a")])
    one = await commit(memory_bus, lake)
    await gateway.accept([event("b")])
    two = await commit(memory_bus, lake)
    assert one.snapshot_id is not None
    two.iceberg.manage_snapshots().rollback_to_snapshot(one.snapshot_id).commit()
    torn = await repair(gateway, what="bus", accept_loss=True)
    assert torn.json()["error"]["code"] == "watermark_torn"
    done = await repair(gateway, what="watermark")
    assert (done.status_code, done.json()["changed"]) == (200, True)
    assert done.json()["watermark_after"] == first_position(2)
    await commit(memory_bus, lake)
    assert stored_ids(lake) == ["a", "b"], "the bus still had it"
    again = await repair(gateway, what="watermark")
    assert again.json()["changed"] is False


async def test_a_watermark_without_any_mark_left_comes_from_the_rows(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    await gateway.accept([event("a")])
    await gateway.accept([event("b")])
    table = await commit(memory_bus, lake)
    with table.iceberg.transaction() as transaction:
        transaction.overwrite(table.iceberg.scan().to_arrow())
    snapshots = lake.table("main.orders").iceberg.metadata.snapshots
    current = lake.table("main.orders")
    for snapshot in snapshots:
        if snapshot.snapshot_id != current.snapshot_id:
            current.iceberg.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    lake.set_properties("main.orders", {"frazil.watermark": "junk"})
    assert lake.table("main.orders").marked_watermark() is None
    done = await repair(gateway, what="watermark")
    assert done.json().get("watermark_after") == first_position(3), done.text
    await gateway.accept([event("c"), event("a")])
    await commit(memory_bus, lake)
    assert sorted(stored_ids(lake)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "wanted", [{}, {"what": "all"}, {"what": "bus", "accept_loss": "yes"}, {"what": "bus", "force": True}]
)
async def test_repairs_that_cannot_be(gateway: Running, wanted: dict[str, Any]) -> None:
    answer = await repair(gateway, **wanted)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_repair")
