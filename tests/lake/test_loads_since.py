"""What came to a log beside its events, as its snapshots tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from frazil.events.declaration import parse_table
from frazil.lake.bulk import Load, Replaces, load_position, loads_since_snapshot, publish_load
from frazil.lake.bulk.loads_since import LoadsSince
from frazil.lake.catalog import Lake
from tests.lake.test_load_commit import written

SPEC = parse_table({"name": "orders", "columns": {"n": "long"}})
START = datetime(2026, 1, 1, tzinfo=UTC)


def load(lake: Lake, number: int, replaces: Replaces = Replaces.NOTHING) -> int:
    """The position of the load's one row."""
    table = lake.table("main.orders")
    at = load_position(START + timedelta(seconds=number))
    row = {"_seq": at, "_id": f"l{number}", "_op": "insert", "_ts": START, "_received_at": START, "n": number}
    files = written(lake, table, pa.Table.from_pylist([row], table.spec.row_schema()))
    publish_load(lake, "main.orders", Load(f"load-{number}", 1, replaces, position=at), files)
    return at


def test_loads_are_told_and_what_they_replace_is_not_guessed(lake: Lake) -> None:
    table = lake.create(SPEC, stream="s", identity="i", first_sequence=1)
    assert loads_since_snapshot(table, None) == LoadsSince()
    first = load(lake, 1)
    seen = lake.table("main.orders").snapshot_id
    second = load(lake, 2)
    table = lake.table("main.orders")
    assert loads_since_snapshot(table, None) == LoadsSince((second, first))
    assert loads_since_snapshot(table, seen) == LoadsSince((second,))
    assert loads_since_snapshot(table, table.snapshot_id) == LoadsSince()
    assert loads_since_snapshot(table, 12345) == LoadsSince(rewritten=True), "of a snapshot that nobody knows"
    load(lake, 3, Replaces.ALL)
    assert loads_since_snapshot(lake.table("main.orders"), seen) == LoadsSince(rewritten=True)


def test_an_expired_snapshot_in_between_means_that_nobody_can_tell(lake: Lake) -> None:
    lake.create(SPEC, stream="s", identity="i", first_sequence=5)
    ids = []
    for number in range(3):
        load(lake, number)
        ids.append(lake.table("main.orders").snapshot_id or 0)
    lake.catalog.load_table("main.orders").maintenance.expire_snapshots().by_id(ids[1]).commit()
    assert loads_since_snapshot(lake.table("main.orders"), ids[0]) == LoadsSince(rewritten=True)
    assert loads_since_snapshot(lake.table("main.orders"), None) == LoadsSince(rewritten=True)
