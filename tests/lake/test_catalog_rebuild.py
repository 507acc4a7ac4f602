"""The catalog is lost, and the warehouse says what it held: which tables, and which of their states was the last."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from frazil.events.declaration import TableSpec
from frazil.lake.catalog import Lake, LakeTable, export_hint, open_lake
from frazil.lake.catalog.table import DROPPED_AT
from frazil.lake.recovery import repair_catalog
from frazil.lake.recovery.catalog_rebuild import RebuiltTable
from frazil.storage import Warehouse, local_path
from tests.contract.seaweed import SeaweedServer
from tests.kills import Address, address, is_killed_at, killed_at
from tests.lake.staging import append
from tests.lake.swaps import dying_before_the_swap
from tests.lake_fixtures import some_table


def make(lake: Lake, **declared: Any) -> TableSpec:
    spec = some_table(**declared)
    lake.create(spec, stream=f"stream_of_{spec.short_name}", identity="an-identity")
    return spec


def lose_catalog(lake: Lake) -> None:
    with lake.catalog.engine.begin() as connection:
        connection.execute(text("DELETE FROM iceberg_tables"))
        connection.execute(text("DELETE FROM iceberg_namespace_properties"))
    lake._loaded.clear()


def repaired(lake: Lake, **options: Any) -> dict[str, RebuiltTable]:
    found = repair_catalog(lake, **options)
    assert len({table.location for table in found}) == len(found), "each folder is told of once"
    return {f"{table.name} {table.state}": table for table in found}


def values(table: LakeTable) -> list[int]:
    return [value for batch in table.scan(["v"]) for value in batch.column("v").to_pylist()]


def metadata_folder(table: LakeTable) -> Path:
    return local_path(table.iceberg.location()) / "metadata"


@pytest.fixture(params=["file", "s3"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A lake on a disk and in a bucket, each in a place of its own."""
    if request.param == "file":
        warehouse = Warehouse(f"file://{tmp_path}/warehouse")
    else:
        server: SeaweedServer = request.getfixturevalue("seaweed")
        warehouse = server.warehouse(f"recover{time.time_ns()}")
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", warehouse)
    yield lake
    lake.close()


def test_all_tables_come_back_as_they_were(stored: Lake) -> None:
    orders, empty = make(stored, description="orders"), make(stored, name="sales.empty", columns={"a": "string"})
    gone = make(stored)
    for number in range(3):
        append(stored, orders.name, [{"v": number}])
    append(stored, gone.name, [{"v": 7}])
    stored.drop(gone.name)
    before = {name: stored.table(name) for name in stored.names()}
    hidden = stored.dropped()
    lose_catalog(stored)

    planned = repaired(stored, dry_run=True)
    assert stored.names() == [] and stored.dropped() == {}
    done = repaired(stored)
    assert done.keys() == planned.keys()
    assert done.keys() == {f"{orders.name} registered", f"{empty.name} registered", f"{gone.name} dropped"}
    told = done[f"{orders.name} registered"]
    assert (told.rows, told.watermark) == (3, before[orders.name].watermark)
    assert (told.columns, told.missing_files, told.rivals) == (len(orders.row_schema()), 0, ())

    assert stored.names() == sorted(before)
    for name, table in before.items():
        after = stored.table(name)
        assert after.metadata_location == table.metadata_location and after.spec == table.spec
    assert stored.dropped() == hidden
    assert values(append(stored, orders.name, [{"v": 3}])) == [3, 2, 1, 0]
    assert sorted(values(stored.undrop(gone.name))) == [7]
    again = repaired(stored)
    assert {table.state for table in again.values()} == {"already_there"}


def test_what_is_there_is_left_alone(lake: Lake) -> None:
    kept, lost = make(lake), make(lake)
    append(lake, kept.name, [{"v": 1}])
    append(lake, lost.name, [{"v": 2}])
    locations = lake.locations()
    lake.catalog.drop_table(lost.name)
    states = repaired(lake)
    assert states.keys() == {f"{kept.name} already_there", f"{lost.name} registered"}
    assert lake.locations() == locations


def test_a_folder_that_changed_just_now_is_left_to_whoever_makes_it(lake: Lake) -> None:
    spec = make(lake)
    lose_catalog(lake)
    assert repaired(lake, settled_seconds=3600).keys() == {f"{spec.name} too_new"}
    assert lake.names() == []


def test_of_two_tables_of_a_name_the_newest_is_it_and_the_other_is_dropped(lake: Lake) -> None:
    old = make(lake)
    append(lake, old.name, [{"v": 1}])
    lake.catalog.rename_table(old.name, hide(lake, old))  # as earlier versions dropped: without a mark
    lake.create(old, stream="another", identity="another")
    append(lake, old.name, [{"v": 2}])
    newest = lake.table(old.name).uuid
    lose_catalog(lake)
    assert repaired(lake).keys() == {f"{old.name} registered", f"{old.name} dropped"}
    assert lake.table(old.name).uuid == newest and values(lake.table(old.name)) == [2]
    assert len(lake.dropped()[old.name]) == 1
    assert {table.state for table in repaired(lake).values()} == {"already_there", "dropped"}


def hide(lake: Lake, spec: TableSpec) -> str:
    lake._namespace("dropped")
    return f"dropped.{spec.namespace}-{spec.name.partition('.')[2]}-{time.time_ns()}"


def test_a_table_that_was_never_made_does_not_come_between(lake: Lake) -> None:
    """A declaration that died before the catalog knew of it, and was made again."""
    spec = some_table()
    lake._namespace(spec.namespace)
    with dying_before_the_swap():
        lake.create(spec, stream="s", identity="i")
    lake.create(spec, stream="s2", identity="i2")
    append(lake, spec.name, [{"v": 1}])
    assert repaired(lake).keys() == {f"{spec.name} already_there", f"{spec.name} leftover"}
    lose_catalog(lake)
    assert repaired(lake).keys() == {f"{spec.name} registered", f"{spec.name} leftover"}
    assert lake.table(spec.name).stream == "s2" and lake.dropped() == {}


@pytest.mark.parametrize("stop", ["after_drop_mark_before_rename", "after_undrop_mark_before_rename"])
def test_a_drop_and_an_undrop_that_died_half_way(lake: Lake, stop: str) -> None:
    spec = make(lake)
    append(lake, spec.name, [{"v": 1}])
    act = lake.drop
    if "undrop" in stop:
        lake.drop(spec.name)
        act = lake.undrop  # type: ignore[assignment]

    killed_at(stop, _act, address(lake), act.__name__, spec.name)
    lake._loaded.clear()
    # It is still what it was, and doing it again finishes it.
    assert (spec.name in lake.names()) == ("undrop" not in stop)
    act(spec.name)
    assert (spec.name in lake.names()) == ("undrop" in stop)
    if "undrop" in stop:
        assert DROPPED_AT not in lake.table(spec.name).properties
        assert values(lake.table(spec.name)) == [1]


def _act(there: Address, word: str, name: str) -> None:
    getattr(there.open(), word)(name)


def test_a_mark_that_the_table_went_on_after_is_none(lake: Lake) -> None:
    spec = make(lake)
    an_hour_ago = time.time_ns() - 3_600_000_000_000
    lake.set_properties(spec.name, {DROPPED_AT: str(an_hour_ago)})
    append(lake, spec.name, [{"v": 1}])
    lose_catalog(lake)
    assert repaired(lake).keys() == {f"{spec.name} registered"}


def test_tables_of_others_are_left_alone(lake: Lake) -> None:
    spec = make(lake)
    lake.catalog.create_namespace("theirs")
    theirs = lake.catalog.create_table("theirs.t", lake.table(spec.name).iceberg.schema())
    lose_catalog(lake)
    states = {table.state: table for table in repair_catalog(lake)}
    assert states.keys() == {"registered", "foreign"} and lake.names() == [spec.name]
    assert states["foreign"].location == theirs.location()


def test_torn_metadata_is_passed_over_and_told(lake: Lake) -> None:
    spec = make(lake)
    for number in range(3):
        append(lake, spec.name, [{"v": number}])
    table = lake.table(spec.name)
    torn = metadata_folder(table) / "00099-0f1e2d3c-1111-4222-8333-444455556666.metadata.json"
    torn.write_bytes(local_path(table.metadata_location).read_bytes()[:500])
    lose_catalog(lake)
    told = repaired(lake)[f"{spec.name} registered"]
    assert [path.rpartition("/")[2] for path in told.unreadable] == [torn.name]
    assert lake.table(spec.name).metadata_location == table.metadata_location


def test_an_exported_copy_is_the_last_resort(lake: Lake) -> None:
    spec = make(lake)
    append(lake, spec.name, [{"v": 1}])
    export_hint(lake.table(spec.name))
    append(lake, spec.name, [{"v": 2}])
    table = lake.table(spec.name)
    lose_catalog(lake)
    repair_catalog(lake)
    assert lake.table(spec.name).metadata_location == table.metadata_location, "the copy is behind"
    export_hint(table)
    lose_catalog(lake)
    for file in metadata_folder(table).glob("0*.metadata.json"):
        file.unlink()
    repair_catalog(lake)
    back = lake.table(spec.name)
    assert back.watermark == table.watermark and sorted(values(back)) == [1, 2]
    assert sorted(values(append(lake, spec.name, [{"v": 3}]))) == [1, 2, 3]
    lose_catalog(lake)
    repair_catalog(lake)
    assert sorted(values(lake.table(spec.name))) == [1, 2, 3], "numbers went on, past the copy"


def test_missing_files_are_told(lake: Lake) -> None:
    spec, headless = make(lake), make(lake)
    for number in range(2):
        append(lake, spec.name, [{"v": number}])
        append(lake, headless.name, [{"v": number}])
    folder = local_path(lake.table(spec.name).iceberg.location())
    next(iter((folder / "data").rglob("*.parquet"))).unlink()
    current = lake.table(headless.name).iceberg.metadata.current_snapshot()
    assert current is not None
    local_path(current.manifest_list).unlink()
    lose_catalog(lake)
    told = repaired(lake)
    assert told[f"{spec.name} damaged"].missing_files == 1
    assert lake.names() == [spec.name], "without its manifests a table is nothing"
    assert "manifests" in told[f"{headless.name} damaged"].note


def test_a_warehouse_that_was_moved_is_told(tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/a"))
    spec = make(lake)
    lake.close()
    shutil.move(tmp_path / "a", tmp_path / "b")
    moved = open_lake(f"sqlite:///{tmp_path}/other.db", Warehouse(f"file://{tmp_path}/b"))
    told = repaired(moved)
    assert told.keys() == {f"{spec.name} damaged"} and f"{tmp_path}/a" in told[f"{spec.name} damaged"].note
    moved.close()


def test_a_catalog_that_is_an_older_copy_is_told(lake: Lake) -> None:
    spec = make(lake)
    append(lake, spec.name, [{"v": 1}])
    old = lake.table(spec.name).metadata_location
    append(lake, spec.name, [{"v": 2}])
    newest = lake.table(spec.name).metadata_location
    point_at(lake, spec, old)
    assert repaired(lake).keys() == {f"{spec.name} behind"}
    assert lake.locations()[spec.name] == old
    lose_catalog(lake)
    repair_catalog(lake)
    assert lake.locations()[spec.name] == newest


def point_at(lake: Lake, spec: TableSpec, location: str) -> None:
    with lake.catalog.engine.begin() as connection:
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :l WHERE table_name = :n"),
            {"l": location, "n": spec.name.partition(".")[2]},
        )


@pytest.mark.parametrize("stop", ["before_register", "after_numbering", "after_register"])
def test_a_repair_that_is_killed_is_finished_by_the_next(lake: Lake, stop: str) -> None:
    """At the point for the first table, the second, and so on, each time from nothing."""
    specs = [make(lake) for _ in range(4)]
    for number, spec in enumerate(specs):
        append(lake, spec.name, [{"v": number}])
    lake.drop(specs[2].name)
    # Of the last one only the exported copy is left: to come back it is written anew.
    export_hint(lake.table(specs[3].name))
    for file in metadata_folder(lake.table(specs[3].name)).glob("0*.metadata.json"):
        file.unlink()
    before = {spec.name: lake.table(spec.name).metadata_location for spec in specs[:2]}
    kills = 0
    for nth in range(1, 6):
        lose_catalog(lake)
        if not is_killed_at(f"{stop}:{nth}", _repair, address(lake)):
            break
        kills += 1
        repair_catalog(lake)
        assert lake.names() == sorted([*before, specs[3].name])
        assert [len(hidden) for hidden in lake.dropped().values()] == [1]
        assert {name: lake.table(name).metadata_location for name in before} == before
        assert values(lake.table(specs[3].name)) == [3]
        assert {table.state for table in repair_catalog(lake)} <= {"already_there", "dropped"}
    assert kills == (1 if stop == "after_numbering" else 4)
    assert values(lake.undrop(specs[2].name)) == [2]
    for spec in specs:
        assert len(values(append(lake, spec.name, [{"v": 9}]))) == 2, "it goes on as any table does"


def _repair(there: Address) -> None:
    repair_catalog(there.open())
