"""Rows beyond their years: what the plan finds, what a removal takes away, and what stays for whom."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from frazil.errors import InvalidInput
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.bulk import FileWriter, Load, plan_files, publish_load
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.maintenance import apply_retention, find_orphans, plan_retention, remove_orphans
from frazil.lake.maintenance.row_removal import _AssertRefs
from frazil.lake.maintenance.row_retention import retention_cutoff
from frazil.storage import local_path
from tests.kills import Address, address, killed_at
from tests.lake.staging import append
from tests.lake.swaps import between_write_and_swap
from tests.lake_fixtures import some_table

TODAY = date(2026, 11, 16)
YEARS = (2013, 2015, 2016, 2020, 2026)


def archive(lake: Lake, partition: str = "dt", **declared: Any) -> TableSpec:
    kind = "timestamp" if "at" in partition else "date"
    column = "at" if "at" in partition else "dt"
    spec = parse_table(
        {
            "name": "archive.t",
            "kind": "bulk",
            "columns": {column: kind, "n": "long"},
            "partition": [partition],
            "retention_years": 10,
            "keep_snapshots": "all",
            **declared,
        }
    )
    lake.create_bulk(spec)
    return spec


def rows_of(table: LakeTable, days: list[date]) -> pa.Table:
    column = next(iter(table.spec.columns))
    kind = table.spec.columns[column].type.arrow
    moments = [datetime(d.year, d.month, d.day, 12, tzinfo=UTC) for d in days]
    values = pa.array(moments if pa.types.is_timestamp(kind) else days, kind)
    return pa.table({column: values, "n": pa.array([d.year for d in days], pa.int64())})


def add_files(lake: Lake, name: str, days: list[date]) -> None:
    """A file for each day, in partitions of any transform."""
    table = lake.table(name)
    folder = local_path(table.iceberg.location()) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        pq.write_table(rows_of(table, [day]), folder / f"{day}.parquet")
    lake.catalog.load_table(name).add_files([f"file://{folder}/{day}.parquet" for day in days])


def load(lake: Lake, name: str, days: list[date]) -> LakeTable:
    table = lake.table(name)
    with FileWriter(plan_files(lake, table)) as writer:
        writer.write(rows_of(table, days))
    load_id = f"load-{len(table.loads)}"
    return publish_load(lake, name, Load(load_id, len(days)), writer.written).table


def plan(lake: Lake, name: str, *, today: date = TODAY, keep_seconds: float = 0.0, **more: Any) -> Any:
    return plan_retention(lake.table(name), today=today, now=datetime.now(UTC), keep_seconds=keep_seconds, **more)


def years(lake: Lake, name: str) -> list[int]:
    return sorted(value for batch in lake.table(name).scan(["n"]) for value in batch.column("n").to_pylist())


def files(lake: Lake, name: str) -> set[Path]:
    return set((local_path(lake.table(name).iceberg.location()) / "data").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("years", "today", "cut"),
    [
        (10, date(2026, 11, 16), datetime(2016, 11, 16, tzinfo=UTC)),
        (1, date(2028, 2, 29), datetime(2027, 2, 28, tzinfo=UTC)),
        (4, date(2028, 2, 29), datetime(2024, 2, 28, tzinfo=UTC)),
        (0.5, date(2026, 7, 2), datetime(2025, 12, 31, tzinfo=UTC)),
        (5000, date(2026, 1, 1), datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_cut(years: float, today: date, cut: datetime) -> None:
    assert retention_cutoff(years, today) == cut


@pytest.mark.parametrize("partition", ["dt", "day(dt)", "month(dt)", "day(at)", "month(at)", "hour(at)"])
def test_what_lies_wholly_beyond_is_planned_and_removed(lake: Lake, partition: str) -> None:
    spec = archive(lake, partition)
    # The cut is the 16th of November 2016: of that month, a partition by month straddles it.
    days = [date(2013, 5, 5), date(2016, 10, 31), date(2016, 11, 15), date(2016, 11, 16), date(2020, 1, 1)]
    add_files(lake, spec.name, days)
    by_month = partition.startswith("month")
    removed = days[:2] if by_month else days[:3]
    found = plan(lake, spec.name)
    assert found.rows == found.files == len(removed) and found.cut == datetime(2016, 11, 16, tzinfo=UTC)
    assert [p.begins.date().replace(day=1) for p in found.partitions] == [d.replace(day=1) for d in removed]
    assert all(p.ends <= found.cut and p.bytes > 0 for p in found.partitions)

    before = lake.table(spec.name)
    told = apply_retention(lake, spec.name, today=TODAY, keep_seconds=600)
    after = lake.table(spec.name)
    assert told["rows"] == len(removed) and told["files_deleted"] == 0
    assert years(lake, spec.name) == [d.year for d in days if d not in removed]
    assert after.rows == len(days) - len(removed)
    assert len(after.iceberg.metadata.snapshots) == len(before.iceberg.metadata.snapshots) + 1
    assert after.watermark == before.watermark and after.loads == before.loads
    again = apply_retention(lake, spec.name, today=TODAY, keep_seconds=600)
    assert (again["rows"], again["files"]) == (0, 0)
    assert lake.table(spec.name).metadata_location == after.metadata_location, "the second time changes nothing"


def test_a_plan_for_another_day(lake: Lake) -> None:
    spec = archive(lake)
    load(lake, spec.name, [date(year, 6, 1) for year in YEARS])
    assert plan(lake, spec.name, today=date(2020, 1, 1)).rows == 0
    assert plan(lake, spec.name, today=date(2025, 6, 1)).rows == 1, "the 1st of June 2015 itself is not beyond"
    assert plan(lake, spec.name, today=date(2025, 6, 2)).rows == 2
    assert plan(lake, spec.name, today=date(2100, 1, 1)).rows == len(YEARS)


def test_the_snapshots_that_hold_the_rows_are_told_and_go_when_asked(lake: Lake) -> None:
    spec = archive(lake)
    for year in YEARS:
        load(lake, spec.name, [date(year, 6, 1)])
    ids = [known.snapshot_id for known in lake.table(spec.name).every_snapshot()]
    tagged = lake.catalog.load_table(spec.name)
    tagged.manage_snapshots().create_tag(ids[1], "audit-2015").commit()
    every = files(lake, spec.name)

    # All snapshots are of today: none is as old as the cut, and so none goes by itself.
    modest = plan(lake, spec.name)
    assert modest.expiring == () and set(modest.holding) == set(ids[:-1]) and modest.tags == ("audit-2015",)
    told = apply_retention(lake, spec.name, today=TODAY, keep_seconds=0)
    assert told["rows"] == 3 and told["snapshots_expired"] == 0 and files(lake, spec.name) == every

    everything = plan(lake, spec.name, all_snapshots=True)
    assert set(everything.expiring) == {ids[0], ids[2], ids[3]}, "not the tagged one, nor the last that was marked"
    told = apply_retention(lake, spec.name, today=TODAY, keep_seconds=0, all_snapshots=True)
    assert told["snapshots_expired"] == 3
    assert files(lake, spec.name) == every, "the last load still names all files"

    load(lake, spec.name, [date(2026, 7, 1)])
    lake.catalog.load_table(spec.name).manage_snapshots().remove_tag("audit-2015").commit()
    told = apply_retention(lake, spec.name, today=TODAY, keep_seconds=0, all_snapshots=True)
    assert told["snapshots_expired"] == 2
    left = files(lake, spec.name)
    assert len(every - left) == 3 and len(left) == 3, "the files of the three old years, and no others"
    assert years(lake, spec.name) == [2020, 2026, 2026]
    assert StaticTable.from_metadata(lake.table(spec.name).metadata_location).scan().to_arrow().num_rows == 3
    orphans = find_orphans(lake.table(spec.name), before=datetime.now(UTC) + timedelta(hours=1))
    assert [orphan for orphan in orphans if not orphan.is_metadata] == [], "each file went once, and none was left"


def test_readers_of_the_last_minutes_keep_what_they_read(lake: Lake) -> None:
    spec = archive(lake)
    for year in YEARS:
        load(lake, spec.name, [date(year, 6, 1)])
    reading = lake.table(spec.name)
    apply_retention(lake, spec.name, today=TODAY, keep_seconds=600, all_snapshots=True)
    assert sorted(v for batch in reading.scan(["n"]) for v in batch.column("n").to_pylist()) == list(YEARS)


def test_a_commit_of_events_meanwhile_is_no_conflict(lake: Lake) -> None:
    spec = some_table(columns={"v": "long", "d": "date"}, partition=["d"], retention_years=1)
    lake.create(spec, stream="s", identity="i")
    append(lake, spec.name, [{"v": 1, "d": date(2020, 1, 1)}])
    append(lake, spec.name, [{"v": 2, "d": TODAY}])
    with between_write_and_swap(lambda: append(lake, spec.name, [{"v": 3, "d": TODAY}])):
        assert apply_retention(lake, spec.name, today=TODAY, keep_seconds=0)["rows"] == 1
    after = append(lake, spec.name, [{"v": 4, "d": date(2020, 1, 1)}])
    assert sorted(v for batch in after.scan(["v"]) for v in batch.column("v").to_pylist()) == [2, 3, 4]


def test_a_tag_made_meanwhile_stops_the_expiry(lake: Lake) -> None:
    spec = archive(lake)
    table = load(lake, spec.name, [date(2013, 1, 1)])
    refs = _AssertRefs(refs={})
    refs.validate(table.iceberg.metadata)
    tagged = lake.catalog.load_table(spec.name)
    assert table.snapshot_id is not None
    tagged.manage_snapshots().create_tag(table.snapshot_id, "t").commit()
    with pytest.raises(Exception, match="tags or branches"):
        refs.validate(tagged.metadata)


@pytest.mark.parametrize(
    ("declared", "code"),
    [({"retention_years": None}, "no_retention"), ({"partition": "n"}, "no_time_partition")],
)
def test_a_table_without_years_or_time_is_told(lake: Lake, declared: dict[str, Any], code: str) -> None:
    spec = archive(lake, **{"partition": "dt", **declared})
    with pytest.raises(InvalidInput) as refused:
        plan(lake, spec.name)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "stop", ["before_removal", "after_removal", "after_removal_expiry", "amid_removal_files", "amid_removal_files:4"]
)
def test_a_kill_at_each_step_leaves_what_the_next_run_finishes(lake: Lake, stop: str) -> None:
    spec = archive(lake)
    for year in YEARS:
        load(lake, spec.name, [date(year, 6, 1)])
    first = lake.table(spec.name).every_snapshot()[0].snapshot_id
    lake.catalog.load_table(spec.name).manage_snapshots().create_tag(first, "audit-2013").commit()
    apply_retention(lake, spec.name, today=date(2025, 6, 2), keep_seconds=0)
    load(lake, spec.name, [date(2026, 7, 1)])

    killed_at(stop, _apply, address(lake), spec.name)
    lake._loaded.clear()
    for _ in range(2):
        apply_retention(lake, spec.name, today=TODAY, keep_seconds=0, all_snapshots=True)
    # What a kill left behind is found as orphans, once no metadata file of before the expiry is kept.
    lake.set_properties(spec.name, {"write.metadata.previous-versions-max": "1"})
    table = lake.set_properties(spec.name, {"one": "more"})
    remove_orphans(table, find_orphans(table, before=datetime.now(UTC) + timedelta(hours=1)))
    assert years(lake, spec.name) == [2020, 2026, 2026]
    assert table.iceberg.scan(snapshot_id=first).to_arrow()["n"].to_pylist() == [2013], "what a tag names can be read"
    left = sorted(pq.read_table(path)["n"][0].as_py() for path in files(lake, spec.name))
    assert left == [2013, 2016, 2020, 2026, 2026], "that of the tag, that of the last load, and what is current"


def _apply(there: Address, name: str) -> None:
    apply_retention(there.open(), name, today=TODAY, keep_seconds=0, all_snapshots=True)
