"""Describe tells where rows come from, and how fresh a table is that only loads write to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from frazil.bus.memory import MemoryBus
from frazil.lake.bulk import FileWriter, Load, LoadedFile, LoadRecord, begin_load, complete_load, plan_files
from frazil.lake.bulk import publish_load as publish
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import Running, commit, event


def load(lake: Lake, name: str, load_id: str, rows: pa.Table, *, source: str = "orders.csv", done: bool = True) -> None:
    table = lake.table(name)
    with FileWriter(plan_files(lake, table)) as writer:
        writer.write(rows)
    began_at = datetime.now(UTC) - timedelta(seconds=2)
    files = (LoadedFile(f"{load_id}.csv", load_id * 3, 10, rows.num_rows),)
    record = LoadRecord(load_id, source, "csv", began_at, rows.num_rows, files)
    begin_load(lake.registry, table.uuid, record)
    if done:
        loaded = publish(lake, name, Load(load_id, rows.num_rows), writer.written)
        complete_load(lake.registry, table.uuid, record, snapshot_id=loaded.snapshot_id)


async def test_lineage_and_loads_of_a_table(gateway: Running, lake: Lake) -> None:
    await gateway.declare(name="bulk.sales", kind="bulk", columns={"n": "long"}, freshness_target_seconds=3600)
    empty = (await gateway.http.get("/v1/tables/bulk.sales")).json()
    assert (empty["lineage"], empty["loads"]) == ([], [])
    assert empty["freshness"] == {"target_seconds": 3600, "age_seconds": None, "met": False}

    for number in range(3):
        load(lake, "bulk.sales", f"l{number}", pa.table({"n": [number, number]}))
    load(lake, "bulk.sales", "other", pa.table({"n": [1]}), source="more.csv")
    load(lake, "bulk.sales", "cut off", pa.table({"n": [1]}), done=False)
    told = (await gateway.http.get("/v1/tables/bulk.sales")).json()
    assert told["rows"] == 7
    assert [(e["source"], e["job"], e["loads"], e["rows"]) for e in told["lineage"]] == [
        ("more.csv", "csv", 1, 1),
        ("orders.csv", "csv", 3, 6),
    ]
    assert [entry["id"] for entry in told["loads"]] == ["cut off", "other", "l2", "l1", "l0"]
    assert [entry["state"] for entry in told["loads"]] == ["unfinished", "done", "done", "done", "done"]
    assert told["loads"][1]["snapshot_id"] == told["snapshot_id"] and told["loads"][1]["files"] == 1
    assert told["freshness"]["met"] is True and told["freshness"]["age_seconds"] < 3600
    listed = (await gateway.http.get("/v1/tables/bulk.sales/loads?limit=2")).json()
    assert listed == {"table": "bulk.sales", "loads": told["loads"][:2]}


async def test_age_counts_from_the_last_load_and_not_from_upkeep(gateway: Running, lake: Lake) -> None:
    await gateway.declare(name="bulk.old", kind="bulk", columns={"n": "long"}, freshness_target_seconds=0.000001)
    load(lake, "bulk.old", "l0", pa.table({"n": [1]}))
    loaded = lake.table("bulk.old").last_commit_at
    assert loaded is not None
    lake.catalog.load_table("bulk.old").append(pa.table({"n": pa.array([], pa.int64())}))
    told = (await gateway.http.get("/v1/tables/bulk.old")).json()
    assert told["last_commit_at"] > loaded.isoformat(), "another snapshot, which is no load"
    assert told["freshness"]["met"] is False and told["freshness"]["age_seconds"] > 0


async def test_events_are_a_source_too(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    assert (await gateway.http.get("/v1/tables/orders")).json()["lineage"] == []
    await gateway.accept([event("a")])
    await commit(memory_bus, lake)
    told = (await gateway.http.get("/v1/tables/orders")).json()
    (entry,) = told["lineage"]
    assert (entry["source"], entry["job"]) == ("events", "commit")
    assert entry["last_loaded_at"] == told["last_commit_at"]
    assert told["freshness"]["age_seconds"] == 0.0, "it has all that was published"
