from __future__ import annotations

from datetime import UTC, datetime

from frazil.lake.bulk import (
    LoadedFile,
    LoadRecord,
    begin_load,
    complete_load,
    forget_files,
    lineage,
    load_of_file,
    load_record,
    load_records,
)
from frazil.lake.catalog import Lake


def record(load_id: str, *files: str, source: str = "csv:orders.csv") -> LoadRecord:
    read = tuple(LoadedFile(name, name * 8, 10, 5) for name in files)
    return LoadRecord(load_id, source, "ingest csv", datetime.now(UTC), 5 * len(files), read)


def test_a_load_is_known_before_and_after_it_is_published(lake: Lake) -> None:
    registry = lake.registry
    first = record("1", "a", "b")
    begin_load(registry, "u", first)
    known = load_record(registry, "u", "1")
    assert known == first and known.done_at is None
    assert load_of_file(registry, "u", "a" * 8) is None, "not before it is published"
    for _ in range(2):
        complete_load(registry, "u", first, snapshot_id=7)
    done = load_record(registry, "u", "1")
    assert done is not None and done.snapshot_id == 7 and done.done_at is not None
    assert load_of_file(registry, "u", "a" * 8) == "1"
    assert load_of_file(registry, "another table", "a" * 8) is None


def test_what_was_replaced_may_be_loaded_again(lake: Lake) -> None:
    registry = lake.registry
    complete_load(registry, "u", record("1", "a", "b"), snapshot_id=1)
    complete_load(registry, "u", record("2", "c"), snapshot_id=2)
    forget_files(registry, "u", but=["c" * 8])
    assert [load_of_file(registry, "u", name * 8) for name in "abc"] == [None, None, "2"]


def test_lineage_sums_what_is_done(lake: Lake) -> None:
    registry = lake.registry
    complete_load(registry, "u", record("1", "a"), snapshot_id=1)
    complete_load(registry, "u", record("2", "b", "c"), snapshot_id=2)
    complete_load(registry, "u", record("3", "d", source="csv:more.csv"), snapshot_id=3)
    begin_load(registry, "u", record("4", "e"))
    told = lineage(load_records(registry, "u"))
    assert [(entry["source"], entry["loads"], entry["rows"], entry["last_load"]) for entry in told] == [
        ("csv:more.csv", 1, 5, "3"),
        ("csv:orders.csv", 2, 15, "2"),
    ]
