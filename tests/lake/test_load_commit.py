from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.errors import Conflict
from frazil.events.declaration import parse_table
from frazil.lake.bulk import (
    FileWriter,
    Load,
    Replaces,
    WrittenFile,
    load_position,
    loaded_snapshot,
    plan_files,
    publish_load,
)
from frazil.lake.bulk import data_files as data_files_module
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.commit.publish import AuditFailed
from frazil.storage import local_path

NIGHTS = parse_table(
    {
        "name": "archive.nights",
        "kind": "bulk",
        "columns": {"dt": "date", "n": "long", "name": "string", "tags": "list<string>"},
        "partition": ["dt"],
        "keep_snapshots": "all",
    }
)


def rows(day: int, numbers: range) -> pa.Table:
    dt = date(2026, 11, day)
    return pa.table({"dt": pa.array([dt] * len(numbers), pa.date32()), "n": pa.array(numbers, pa.int64())})


def written(lake: Lake, table: LakeTable, *pieces: pa.Table) -> list[WrittenFile]:
    plan = pickle.loads(pickle.dumps(plan_files(lake, table)))  # noqa: S301 - as on its way to a task
    with FileWriter(plan) as writer:
        for piece in pieces:
            writer.write(piece)
    return [pickle.loads(pickle.dumps(file)) for file in writer.written]  # noqa: S301


def load(lake: Lake, load_id: str, day: int, numbers: range, replaces: Replaces = Replaces.NOTHING) -> None:
    table = lake.table(NIGHTS.name)
    files = written(lake, table, rows(day, numbers))
    partition = {"dt": date(2026, 11, day)} if replaces is Replaces.PARTITION else None
    publish_load(lake, NIGHTS.name, Load(load_id, len(numbers), replaces, partition), files)


def numbers(lake: Lake, day: int | None = None) -> list[int]:
    found = lake.table(NIGHTS.name).iceberg.scan().to_arrow()
    pairs = zip(found["dt"].to_pylist(), found["n"].to_pylist(), strict=True)
    return sorted(n for dt, n in pairs if day in (None, dt.day))


@pytest.fixture
def nights(lake: Lake) -> LakeTable:
    return lake.create_bulk(NIGHTS)


def test_a_load_is_one_snapshot_and_happens_once(lake: Lake, nights: LakeTable) -> None:
    files = written(lake, nights, rows(1, range(3)), rows(2, range(10, 12)))
    assert sorted(file.rows for file in files) == [2, 3], "a file for each partition"
    first = publish_load(lake, NIGHTS.name, Load("a", 5), files)
    assert first.is_new and first.table.rows == 5 and first.table.loads == ("a",)
    again = publish_load(lake, NIGHTS.name, Load("a", 5), written(lake, nights, rows(1, range(3)), rows(2, range(2))))
    assert not again.is_new and again.snapshot_id == first.snapshot_id
    assert numbers(lake) == [0, 1, 2, 10, 11]
    found = lake.table(NIGHTS.name).iceberg.scan().to_arrow()
    assert found.column_names == ["dt", "n", "name", "tags"] and found["name"].null_count == 5


def test_a_partition_is_replaced_and_the_others_are_not_touched(lake: Lake, nights: LakeTable) -> None:
    load(lake, "monday", 1, range(3))
    load(lake, "tuesday", 2, range(10, 13))
    monday = {file["file_path"] for file in lake.table(NIGHTS.name).iceberg.inspect.files().to_pylist()}
    load(lake, "tuesday again", 2, range(20, 21), Replaces.PARTITION)
    assert (numbers(lake, 1), numbers(lake, 2)) == ([0, 1, 2], [20])
    after = {file["file_path"] for file in lake.table(NIGHTS.name).iceberg.inspect.files().to_pylist()}
    assert len(after & monday) == 1, "the file of the first night is the same"
    earlier = loaded_snapshot(lake.table(NIGHTS.name), "tuesday")
    assert earlier is not None
    old = lake.table(NIGHTS.name).iceberg.scan(snapshot_id=earlier.snapshot_id).to_arrow()
    assert sorted(old["n"].to_pylist()) == [0, 1, 2, 10, 11, 12]


def test_everything_is_replaced(lake: Lake, nights: LakeTable) -> None:
    load(lake, "a", 1, range(3))
    load(lake, "b", 2, range(3))
    load(lake, "c", 3, range(7, 9), Replaces.ALL)
    assert numbers(lake) == [7, 8]
    load(lake, "d", 4, range(0), Replaces.ALL)
    assert numbers(lake) == [], "also by nothing"


def test_events_are_not_replaced_by_a_load(lake: Lake) -> None:
    spec = parse_table({"name": "orders", "columns": {"n": "long"}})
    table = lake.create(spec, stream="s", identity="i", first_sequence=5)
    load_row = pa.table(
        {
            "_seq": pa.array([load_position(datetime.now(UTC))]),
            "_id": ["x"],
            "_op": ["insert"],
            "_ts": pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC")),
            "_received_at": pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC")),
            "n": [1],
        }
    )
    publish_load(lake, "main.orders", Load("a", 1), written(lake, table, load_row))
    with pytest.raises(Conflict, match="events"):
        publish_load(lake, "main.orders", Load("b", 1, Replaces.ALL), written(lake, table, load_row))
    table = lake.table("main.orders")
    assert table.watermark == 5 << 20, "a load does not move it"
    assert list(table.ids_since(datetime(2020, 1, 1, tzinfo=UTC))) == [], "its rows are no events"


def test_two_who_race_load_once_each(open_again: Callable[[], Lake], lake: Lake, nights: LakeTable) -> None:
    """The second one has seen the table before the first committed: it looks again, and keeps both."""
    other = open_again()
    seen = other.table(NIGHTS.name)
    files = written(other, seen, rows(2, range(5)))
    load(lake, "first", 1, range(3))
    publish_load(other, NIGHTS.name, Load("second", 5), files)
    assert lake.table(NIGHTS.name).loads == ("first", "second")
    assert len(numbers(lake)) == 8
    other.close()


def test_a_load_that_is_not_what_was_meant_is_not_published(lake: Lake, nights: LakeTable) -> None:
    files = written(lake, nights, rows(1, range(3)))
    with pytest.raises(AuditFailed):
        publish_load(lake, NIGHTS.name, Load("a", 4), files)
    assert lake.table(NIGHTS.name).snapshot_id is None


def test_a_task_that_fails_leaves_no_files(lake: Lake, nights: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "ROW_GROUP_BYTES", 1)
    folder = local_path(nights.iceberg.location())
    plan = plan_files(lake, nights)
    with FileWriter(plan) as writer:
        writer.write(rows(1, range(3)))
    whole = set(folder.rglob("*.parquet"))

    def fails() -> None:
        with FileWriter(plan) as writer:
            writer.write(rows(1, range(3)))
            assert len(set(folder.rglob("*.parquet"))) > len(whole)
            writer.write(pa.table({"dt": ["no date"]}))

    with pytest.raises(pa.ArrowInvalid):
        fails()
    assert set(folder.rglob("*.parquet")) == whole


def test_files_are_closed_when_they_are_large_and_when_many_are_open(
    lake: Lake, nights: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files_module, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(data_files_module, "FILE_BYTES", 2000)
    monkeypatch.setattr(data_files_module, "_OPEN_PARTITIONS", 2)
    pieces = [rows(day, range(100)) for _ in range(3) for day in (1, 2, 3, 4)]
    files = written(lake, nights, *pieces)
    assert len(files) > 4
    publish_load(lake, NIGHTS.name, Load("a", 1200), files)
    assert len(numbers(lake)) == 1200


def test_a_column_has_a_dictionary_if_its_values_repeat(lake: Lake, nights: LakeTable) -> None:
    many = rows(1, range(1000))
    few = pa.array([f"name {n % 50}" for n in range(1000)])
    tags = pa.array([["a", f"b{n % 3}"] for n in range(1000)])
    [file] = written(lake, nights, many.append_column("name", few).append_column("tags", tags))
    found = pq.ParquetFile(local_path(file.path)).metadata.row_group(0)
    columns = [found.column(at) for at in range(found.num_columns)]
    assert {column.path_in_schema: "RLE_DICTIONARY" in column.encodings for column in columns} == {
        "dt": True,
        "n": False,
        "name": True,
        "tags.list.element": True,
    }
    publish_load(lake, NIGHTS.name, Load("a", 1000), [file])
    read = lake.table(NIGHTS.name).iceberg.scan().to_arrow()
    assert read.select(["n", "name", "tags"]).sort_by("n")["name"].to_pylist() == few.to_pylist()
    assert read.sort_by("n")["tags"].to_pylist() == tags.to_pylist()


def test_pieces_of_several_partitions_are_told_apart(lake: Lake, nights: LakeTable) -> None:
    mixed = pa.concat_tables([rows(1, range(3)), rows(2, range(3, 5)), rows(1, range(5, 6))])
    files = written(lake, nights, mixed, rows(2, range(6, 7)))
    assert sorted(file.rows for file in files) == [3, 4]
    publish_load(lake, NIGHTS.name, Load("a", 7), files)
    assert numbers(lake, 1) == [0, 1, 2, 5] and numbers(lake, 2) == [3, 4, 6]


def test_a_plan_does_not_show_the_keys_of_the_store(lake: Lake, nights: LakeTable, tmp_path: Path) -> None:
    assert "io=" not in repr(plan_files(lake, nights))


def test_rows_of_many_partitions_are_each_in_theirs_in_their_order(lake: Lake) -> None:
    spec = parse_table(
        {
            "name": "archive.spread",
            "kind": "bulk",
            "columns": {"at": "timestamp", "p": "string", "n": "long"},
            "partition": ["day(at)", "p", "bucket(3,n)"],
        }
    )
    table = lake.create_bulk(spec)
    at = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=7 * (n % 90)) for n in range(500)]
    names = [None if n % 7 == 0 else f"/{n % 3}" for n in range(500)]
    given = {"at": pa.array(at, pa.timestamp("us", "UTC")), "p": names, "n": pa.array(range(500), pa.int64())}
    files = written(lake, table, pa.table(given))
    publish_load(lake, spec.name, Load("a", 500), files)
    stored = lake.table(spec.name).iceberg.scan().to_arrow().sort_by("n")
    assert stored["at"].to_pylist() == at and stored["p"].to_pylist() == names
    for file in lake.table(spec.name).iceberg.scan().plan_files():
        rows = pq.ParquetFile(local_path(file.file.file_path)).read()
        assert len({day.date() for day in rows["at"].to_pylist()}) == 1 and len(rows["p"].unique()) == 1
        assert rows["n"].to_pylist() == sorted(rows["n"].to_pylist())
    one_day = lake.table(spec.name).iceberg.scan(row_filter="p == '/1' and at < '2026-01-02T00:00:00+00:00'")
    assert sorted(one_day.to_arrow()["n"].to_pylist()) == [
        n for n in range(500) if names[n] == "/1" and at[n] < datetime(2026, 1, 2, tzinfo=UTC)
    ]
