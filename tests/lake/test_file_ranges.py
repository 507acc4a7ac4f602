"""Ranges of files: every row of a table is in exactly one, and reading them gives the rows back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import Unavailable
from frazil.events.declaration import parse_table
from frazil.lake.bulk import (
    FileRange,
    FileWriter,
    Load,
    plan_files,
    publish_load,
    ranges_since,
    read_range,
    read_rows,
    rows_by,
    sequence_number,
    whole_files,
)
from frazil.lake.bulk import data_files as writing
from frazil.lake.catalog import Lake, LakeTable

SPEC = parse_table(
    {"name": "t", "kind": "bulk", "columns": {"n": "long", "s": "string", "p": "string"}, "partition": "p"}
)
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is a row group of its own."""
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 1)


def add(lake: Lake, name: str, *sizes: int, first: int = 0, p: str = "x") -> LakeTable:
    with FileWriter(plan_files(lake, lake.table(name))) as writer:
        for size in sizes:
            numbers = list(range(first, first + size))
            first += size
            writer.write(pa.table({"n": numbers, "s": [f"text {n}" for n in numbers], "p": [p] * size}))
    return publish_load(lake, name, Load(f"load{first}{p}", sum(sizes)), writer.written).table


def read(lake: Lake, table: LakeTable, wanted: list[FileRange]) -> list[int]:
    plan = plan_files(lake, table)
    found = [row for each in wanted for rows in read_range(plan, each, SCHEMA) for row in rows["n"].to_pylist()]
    return [int(n) for n in found]


@pytest.mark.parametrize("max_rows", [1, 3, 7, 1000])
def test_ranges_hold_each_row_once(lake: Lake, max_rows: int) -> None:
    lake.create_bulk(SPEC)
    add(lake, SPEC.name, 5, 1, 9, 2)
    table = add(lake, SPEC.name, 4, first=17)
    ranges = ranges_since(table, 0, ["s"], max_rows=max_rows, max_bytes=1 << 20)
    assert all(0 < each.rows <= max_rows for each in ranges)
    assert sorted(read(lake, table, ranges)) == list(range(21))


def test_bytes_bound_a_range_too(lake: Lake) -> None:
    lake.create_bulk(SPEC)
    table = add(lake, SPEC.name, 1000)
    few = ranges_since(table, 0, ["s"], max_rows=1000, max_bytes=1 << 20)
    many = ranges_since(table, 0, ["s"], max_rows=1000, max_bytes=500)
    assert len(few) == 1 < len(many) and sorted(read(lake, table, many)) == list(range(1000))


def test_new_files_are_those_of_later_commits(lake: Lake) -> None:
    lake.create_bulk(SPEC)
    before = add(lake, SPEC.name, 5)
    after = add(lake, SPEC.name, 4, first=5)
    words = {"columns": ["s"], "max_rows": 100, "max_bytes": 1 << 20}
    new = ranges_since(after, sequence_number(before), **words)  # type: ignore[arg-type]
    assert sorted(read(lake, after, new)) == [5, 6, 7, 8]
    assert ranges_since(after, sequence_number(after), **words) == []  # type: ignore[arg-type]


def test_rows_are_picked_from_their_groups_and_partitions(lake: Lake) -> None:
    lake.create_bulk(SPEC)
    add(lake, SPEC.name, 5, 5, 5)
    table = add(lake, SPEC.name, 3, first=15, p="y")
    assert rows_by(table, "p") == {"x": 15, "y": 3}
    (file,) = whole_files(table, {"p": "x"})
    rows = np.array([0, 4, 5, 14])
    assert read_rows(plan_files(lake, table), file.path, rows, "s").to_pylist() == [f"text {n}" for n in rows]


def test_a_file_that_is_gone_may_be_found_elsewhere(lake: Lake) -> None:
    lake.create_bulk(SPEC)
    table = add(lake, SPEC.name, 5)
    (file,) = whole_files(table, {"p": "x"})
    table.iceberg.io.delete(file.path)
    with pytest.raises(Unavailable) as error:
        read(lake, table, [file])
    assert error.value.code == "file_gone"
