"""Which files are orphans: found beside everything that must be spared."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.errors import DataLoss
from frazil.lake.catalog import Lake, LakeTable, export_hint, open_lake
from frazil.lake.maintenance import find_orphans, remove_orphans
from frazil.storage import local_path
from tests.contract.seaweed import SeaweedServer
from tests.lake.staging import append, rows, stage, start_of_next
from tests.lake_fixtures import some_table

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def name(lake: Lake) -> str:
    spec = some_table()
    lake.create(spec, stream=spec.short_name, identity="i")
    for v in range(3):
        append(lake, spec.name, [{"v": v}])
    return spec.name


def folder(table: LakeTable) -> Path:
    return local_path(table.iceberg.location())


def all_files(table: LakeTable) -> set[Path]:
    return {path for path in folder(table).rglob("*") if path.is_file()}


def orphans(lake: Lake, name: str, before: datetime = LATER) -> set[Path]:
    return {Path(orphan.path) for orphan in find_orphans(lake.table(name), before=before)}


def test_nothing_that_the_table_needs_is_an_orphan(lake: Lake, name: str) -> None:
    """Every file there is belongs to a snapshot, staged ones and tagged ones too, or to an export."""
    table = lake.table(name)
    table.iceberg.manage_snapshots().create_tag(table.snapshots()[-1].snapshot_id, "first").commit()
    export_hint(lake.table(name))
    append(lake, name, [{"v": 9}])
    base = lake.table(name)
    stage(lake, base, rows(base, [{"v": 10}]), start_of_next(base))
    assert orphans(lake, name) == set()
    assert {"version-hint.text", "v1.metadata.json"} <= {path.name for path in all_files(table)}


def test_what_nothing_leads_to_is_found_with_its_checksum(lake: Lake, name: str) -> None:
    table = lake.table(name)
    data = next((folder(table) / "data").rglob("*.parquet"))
    left = {
        data.with_name("left.parquet"),
        data.with_name(".left.parquet.crc"),
        folder(table) / "metadata" / "00099-left.metadata.json",
        folder(table) / "metadata" / "left-m0.avro",
        # Looks like an export, but does not lie where exports do.
        folder(table) / "data" / "v1.metadata.json",
    }
    for path in left:
        path.write_bytes(b"left behind")
    kept = data.with_name(f".{data.name}.crc")
    kept.write_bytes(b"the checksum of a file that is needed")
    assert orphans(lake, name) == left
    before = all_files(table)
    assert remove_orphans(table, find_orphans(table, before=LATER)) == len(left)
    assert all_files(table) == before - left
    assert orphans(lake, name) == set() and lake.table(name).rows == 3


def test_young_files_are_spared(lake: Lake, name: str) -> None:
    young, old = (folder(lake.table(name)) / "data" / f"{word}.parquet" for word in ("young", "old"))
    for path in (young, old):
        path.write_bytes(b"x")
    long_ago = (datetime.now(UTC) - timedelta(days=4)).timestamp()
    os.utime(old, (long_ago, long_ago))
    assert orphans(lake, name, datetime.now(UTC) - timedelta(days=3)) == {old}


def test_an_export_keeps_what_it_names(lake: Lake, name: str) -> None:
    """The exported state outlives the metadata log, and its snapshots have expired from the table since."""
    export_hint(lake.table(name))
    exported = lake.table(name)
    lake.set_properties(name, {"write.metadata.previous-versions-max": "1"})
    for v in range(5):
        append(lake, name, [{"v": v}])
    oldest = [snapshot.snapshot_id for snapshot in lake.table(name).snapshots()][5:]
    lake.table(name).iceberg.maintenance.expire_snapshots().by_ids(oldest).commit()
    append(lake, name, [{"v": 5}])
    assert lake.table(name).snapshots()[-1].snapshot_id not in oldest
    found = orphans(lake, name)
    needed = {local_path(snapshot.manifest_list) for snapshot in exported.iceberg.metadata.snapshots}
    assert not found & needed
    for copy in (folder(exported) / "metadata").glob("v*.metadata.json"):
        copy.unlink()
    of_the_table = {local_path(snapshot.manifest_list) for snapshot in lake.table(name).iceberg.metadata.snapshots}
    assert needed - of_the_table and needed - of_the_table <= orphans(lake, name)


def test_a_listing_that_lacks_files_of_the_table_removes_nothing(lake: Lake, name: str) -> None:
    table = lake.table(name)
    (folder(table) / "data" / "left.parquet").write_bytes(b"x")
    data = next(path for path in (folder(table) / "data").rglob("*.parquet") if path.name != "left.parquet")
    shutil.move(data, data.with_suffix(".moved"))
    with pytest.raises(DataLoss) as caught:
        find_orphans(table, before=LATER)
    assert caught.value.code == "files_missing"


@pytest.mark.s3
def test_the_same_in_a_bucket(seaweed: SeaweedServer, tmp_path: Path) -> None:
    opened = open_lake(f"sqlite:///{tmp_path}/catalog.db", seaweed.warehouse("orphans"))
    spec = some_table(partition=["v"])
    opened.create(spec, stream=spec.short_name, identity="i")
    for v in range(2):
        append(opened, spec.name, [{"v": v}])
    table = opened.table(spec.name)
    export_hint(table)
    assert find_orphans(table, before=LATER) == []
    left = f"{table.iceberg.location()}/data/v=1/left.parquet"
    with table.iceberg.io.new_output(left).create() as file:
        file.write(b"left")
    found = find_orphans(table, before=LATER)
    assert [f"s3://{orphan.path}" for orphan in found] == [left] and found[0].bytes == 4
    assert find_orphans(table, before=datetime.now(UTC) - timedelta(hours=1)) == []
    assert remove_orphans(table, found) == 1 and find_orphans(table, before=LATER) == []
    assert opened.table(spec.name).rows == 2 and not table.iceberg.io.new_input(left).exists()
    opened.close()
