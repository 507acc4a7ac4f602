"""`frazil catalog repair`, and what describe, loads and retention show."""

from __future__ import annotations

import json
from pathlib import Path

from frazil.lake.catalog import open_lake
from frazil.storage import Journal, Warehouse
from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer
from tests.lake.staging import append
from tests.lake_fixtures import some_table


def test_a_catalog_is_made_again_without_a_server(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "frazil-data"
    catalog = data / "catalog.db"
    lake = open_lake(f"sqlite:///{catalog}", Warehouse(f"file://{data}/warehouse"))
    spec = some_table()
    lake.create(spec, stream="s", identity="i")
    append(lake, spec.name, [{"v": 1}, {"v": 2}])
    lake.close()
    whole = run("catalog", "repair", "--json")
    assert whole.code == 0 and json.loads(whole.out)["tables"][0]["state"] == "already_there"

    for file in data.glob("catalog.db*"):
        file.write_bytes(b"this is no database at all, whatever its name says " * 100)
    damaged = run("catalog", "repair")
    assert damaged.code == 2 and "move it away and run `frazil catalog repair`" in damaged.err
    for file in data.glob("catalog.db*"):
        file.unlink()
    planned = run("catalog", "repair", "--dry-run")
    assert planned.code == 0 and "registered" in planned.out and "token create" in planned.out
    assert Journal(data / "journal").read() == []
    done = run("catalog", "repair")
    assert done.code == 0 and spec.short_name in done.out
    (entry,) = Journal(data / "journal").read()
    assert (entry["kind"], entry["table"], entry["state"]) == ("catalog_repaired", spec.name, "registered")
    told = json.loads(run("catalog", "repair", "--json").out)
    assert [(table["state"], table["rows"]) for table in told["tables"]] == [("already_there", 2)]
    assert "tokens and grants" in [lost["what"] for lost in told["not_in_the_warehouse"]]

    lake = open_lake(f"sqlite:///{catalog}", Warehouse(f"file://{data}/warehouse"))
    next(iter(Path(lake.table(spec.name).iceberg.location().removeprefix("file://")).rglob("*.parquet"))).unlink()
    lake.close()
    for file in data.glob("catalog.db*"):
        file.unlink()
    lossy = run("catalog", "repair")
    assert lossy.code == 1 and "1 of its data files are gone" in lossy.out


def test_describe_and_loads_show_where_rows_come_from(run: Run, server: ContractServer) -> None:
    load = {"id": "l-1", "source": "orders.csv", "job": "csv", "state": "done", "rows": 1200, "files": 2}
    load |= {"began_at": "2026-11-16T05:00:00+00:00", "seconds": 1.25, "snapshot_id": 77}
    server.tables["t"] |= {
        "lineage": [
            {"source": "orders.csv", "job": "csv", "loads": 3, "rows": 3600, "last_loaded_at": "2026-11-16T05"}
        ],
        "loads": [load],
    }
    described = run("tables", "describe", "t").out
    assert "3,600" in described and "orders.csv" in described and "l-1" in described
    listed = run("tables", "loads", "t").out
    assert "1,200" in listed and "77" in listed
    assert json.loads(run("tables", "loads", "t", "--json").out)["loads"] == [load]


def test_retention_shows_the_plan_unless_it_is_told_to_apply(run: Run, server: ContractServer) -> None:
    part = {"begins": "2013-05-05T00:00:00", "ends": "2013-05-06T00:00:00", "rows": 1200, "files": 3, "bytes": 4000}
    plan = {"partitions": [part], "rows": 1200, "files": 3, "bytes": 4000, "cut": "2016-11-16T00:00:00", "column": "dt"}
    plan |= {"retention_years": 10.0, "expiring_snapshots": [1], "holding_snapshots": [2, 3], "holding_tags": ["audit"]}
    server.plan = {"plan": [], "retention": plan}
    told = run("retention", "t", "--at", "2026-11-16").out
    assert "2013-05-05 to 2013-05-06  1,200 rows  3 files  4 kB" in told
    assert "frazil retention t --apply" in told and "the tags audit" in told
    assert json.loads(server.requests[-1][3]) == {"what": "retention", "sort": [], "dry_run": True, "at": "2026-11-16"}
