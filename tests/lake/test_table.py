"""What a table says about itself: its watermark, refused where it was torn, and its rows by position and time."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.errors import DataLoss, Misconfigured, Unavailable, WatermarkTorn
from frazil.events import first_position
from frazil.lake.catalog import WATERMARK, Lake, LakeTable, open_lake
from frazil.lake.catalog.table import WATERMARK_SEQUENCE
from frazil.storage import Warehouse
from tests.contract.servers import PostgresServer
from tests.lake.staging import append, rows
from tests.lake_fixtures import some_table, stored_ids


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.create(some_table(), stream="s", identity="i")


def torn(lake: Lake, name: str) -> WatermarkTorn:
    with pytest.raises(WatermarkTorn) as refused:
        _ = lake.table(name).watermark
    assert f"frazil repair watermark {name.removeprefix('main.')}" in refused.value.hint
    return refused.value


def test_a_watermark_set_by_hand_is_refused(lake: Lake, table: LakeTable) -> None:
    append(lake, table.name, [{"_id": "a"}])
    lake.set_properties(table.name, {WATERMARK: str(first_position(9))})
    assert str(first_position(9)) in torn(lake, table.name).message
    assert lake.table(table.name).marked_watermark() == first_position(2)


def test_a_rollback_by_hand_is_refused(lake: Lake, table: LakeTable) -> None:
    append(lake, table.name, [{"_id": "a"}])
    append(lake, table.name, [{"_id": "b"}])
    iceberg = lake.catalog.load_table(table.name)
    first = lake.table(table.name).snapshots()[-1].snapshot_id
    iceberg.manage_snapshots().rollback_to_snapshot(first).commit()
    assert "rolled back" in torn(lake, table.name).message


def test_rows_without_a_watermark_are_refused(lake: Lake, table: LakeTable) -> None:
    append(lake, table.name, [{"_id": "a"}])
    with lake.catalog.load_table(table.name).transaction() as transaction:
        transaction.remove_properties(WATERMARK)
    assert "no watermark" in torn(lake, table.name).message


@pytest.mark.parametrize("nonsense", ["", "many", "1.5"])
def test_a_watermark_that_is_no_number_is_refused(lake: Lake, table: LakeTable, nonsense: str) -> None:
    lake.set_properties(table.name, {WATERMARK: nonsense})
    torn(lake, table.name)


def test_a_table_that_lost_all_its_snapshots_is_refused(lake: Lake, table: LakeTable) -> None:
    lake.set_properties(table.name, {WATERMARK: str(first_position(2)), WATERMARK_SEQUENCE: "1"})
    assert "no snapshot" in torn(lake, table.name).message


def test_a_commit_of_another_hand_keeps_the_watermark(lake: Lake, table: LakeTable) -> None:
    """Maintenance adds snapshots without a mark: the watermark below them still counts."""
    before = append(lake, table.name, [{"_id": "a"}])
    lake.catalog.load_table(table.name).overwrite(rows(table, [{"_id": "a"}]))
    after = lake.table(table.name)
    assert after.snapshot_id != before.snapshot_id and after.watermark == before.watermark == first_position(2)
    lake.catalog.load_table(table.name).maintenance.expire_snapshots().by_id(before.snapshot_id or 0).commit()
    assert lake.table(table.name).watermark == first_position(2)


def test_rows_by_position(lake: Lake, table: LakeTable) -> None:
    for number in range(3):
        append(lake, table.name, [{"v": number * 10}, {"v": number * 10 + 1}])
    now = lake.table(table.name)
    wanted = [first_position(3) + 1, first_position(1), first_position(1), first_position(2) + 7, first_position(9)]
    assert now.rows_at(wanted)["v"].to_pylist() == [0, 21]
    assert now.rows_at([]).num_rows == 0 and now.rows_at([first_position(99)]).num_rows == 0
    assert table.rows_at([first_position(1)]).num_rows == 0, "an older state of the table stays as it was"
    assert (now.rows, now.files) == (6, 3) and now.bytes > 0


def test_ids_by_the_time_they_were_received(lake: Lake, table: LakeTable) -> None:
    now = datetime.now(UTC)
    for hours in (30, 20, 10):
        append(lake, table.name, [{"_id": f"{hours}h ago"}], received_at=now - timedelta(hours=hours))
    current = lake.table(table.name)

    def since(hours: float) -> list[str]:
        batches = list(current.ids_since(now - timedelta(hours=hours)))
        assert all(batch.schema.names == ["_id", "_seq", "_received_at"] for batch in batches)
        return sorted(name for batch in batches for name in batch.column("_id").to_pylist())

    assert since(25) == ["10h ago", "20h ago"]
    assert since(20) == ["10h ago", "20h ago"], "the border counts"
    assert since(1) == [] and len(since(100)) == 3
    assert list(table.ids_since(now)) == []


def test_the_whole_table_can_be_scanned(lake: Lake, table: LakeTable) -> None:
    append(lake, table.name, [{"v": 1}, {"v": None}])
    now = lake.table(table.name)
    assert [value for batch in now.scan(["v"]) for value in batch.column("v").to_pylist()] == [1, None]
    assert sum(batch.num_rows for batch in now.scan()) == 2


def folder_of(table: LakeTable) -> Path:
    return Path(table.iceberg.location().removeprefix("file://"))


def test_a_missing_metadata_file_is_data_loss(lake: Lake, table: LakeTable) -> None:
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(DataLoss) as refused:
        lake.table(table.name)
    assert refused.value.code == "metadata_missing" and "backup" in refused.value.hint
    assert lake.names() == [table.name], "the list does not need the file"


def test_a_missing_data_file_is_data_loss(lake: Lake, table: LakeTable) -> None:
    now = append(lake, table.name, [{"v": 1}])
    shutil.rmtree(folder_of(table) / "data")
    with pytest.raises(DataLoss):
        now.rows_at([first_position(1)])


@pytest.mark.parametrize("content", [b"", b"{", b'{"format-version": 2}', b"\x00" * 100])
def test_a_damaged_metadata_file_is_data_loss(lake: Lake, table: LakeTable, content: bytes) -> None:
    Path(table.metadata_location.removeprefix("file://")).write_bytes(content)
    with pytest.raises(DataLoss) as refused:
        lake.table(table.name)
    assert refused.value.code == "metadata_damaged" and "backup" in refused.value.hint


@pytest.mark.parametrize("content", [b"this is not a database, but long enough to be taken for one" * 20])
def test_a_damaged_catalog_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "catalog.db").write_bytes(content)
    with pytest.raises(Misconfigured) as refused:
        open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    assert refused.value.code == "catalog_damaged" and "backup" in refused.value.hint
    assert (tmp_path / "catalog.db").read_bytes() == content, "left as it was, for whoever repairs it"


def test_a_catalog_damaged_inside_is_told(tmp_path: Path) -> None:
    """The first page is whole, so that the file opens; the tables behind it are not."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    lake = open_lake(url, Warehouse(f"file://{tmp_path}/warehouse"))
    for _ in range(5):
        lake.create(some_table(), stream="s", identity="i")
    lake.close()
    path = tmp_path / "catalog.db"
    for extra in ("catalog.db-wal", "catalog.db-shm"):
        (tmp_path / extra).unlink(missing_ok=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(Misconfigured) as refused:
        open_lake(url, Warehouse(f"file://{tmp_path}/warehouse")).names()
    assert refused.value.code == "catalog_damaged"


def test_an_address_that_no_catalog_speaks(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as refused:
        open_lake("mysql://somewhere/db", Warehouse(f"file://{tmp_path}/warehouse"))
    assert "catalog.url" in refused.value.hint


def test_a_catalog_server_that_goes_away_and_comes_back(tmp_path: Path, catalog_postgres: PostgresServer) -> None:
    server = catalog_postgres
    warehouse = Warehouse(f"file://{tmp_path}/warehouse")
    lake = open_lake(server.url, warehouse, name="goes_away", **server.credentials)
    table = lake.create(some_table(), stream="s", identity="i")
    append(lake, table.name, [{"_id": "a"}])
    base = lake.table(table.name)
    server.kill()
    try:
        for call in (lake.names, lake.dropped, lambda: lake.table(table.name), lambda: lake.drop(table.name)):
            with pytest.raises(Unavailable) as refused:
                call()
            assert refused.value.transient and refused.value.code == "lake_unavailable"
            assert server.credentials["password"] not in str(refused.value.body())
    finally:
        server.start()
    assert lake.table(table.name).metadata_location == base.metadata_location
    append(lake, table.name, [{"_id": "b"}])
    assert stored_ids(lake, table.name) == ["a", "b"]
    lake.close()


def test_a_catalog_server_that_is_silent_is_not_waited_for_for_ever(
    tmp_path: Path, catalog_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.lake.catalog.lake._SILENT_SECONDS", 0.5)
    warehouse = Warehouse(f"file://{tmp_path}/warehouse")
    lake = open_lake(catalog_postgres.url, warehouse, name="silent", **catalog_postgres.credentials)
    table = lake.create(some_table(), stream="s", identity="i")
    catalog_postgres.pause()
    try:
        for _ in range(2):
            with pytest.raises(Unavailable):
                lake.names()
    finally:
        catalog_postgres.resume()
    monkeypatch.undo()
    lake.catalog.engine.dispose()
    assert lake.names() == [table.name]
    lake.close()


def test_a_wrong_password_is_told_without_telling_it(tmp_path: Path, catalog_postgres: PostgresServer) -> None:
    with pytest.raises(Unavailable) as refused:
        open_lake(catalog_postgres.url, Warehouse(f"file://{tmp_path}/w"), user="frazil", password="a-wrong-word")
    assert "a-wrong-word" not in str(refused.value.body())
