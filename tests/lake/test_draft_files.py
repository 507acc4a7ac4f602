from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.events.declaration import Column, ColumnType, TableSpec, parse_table
from frazil.lake.bulk import (
    FilePlan,
    FileWriter,
    Load,
    WrittenFile,
    discard,
    draft_location,
    forget_draft,
    holds,
    plan_draft_files,
    plan_extended_files,
    publish_load,
)
from frazil.lake.catalog import Lake
from frazil.storage import local_path

SPEC = parse_table({"name": "main.things", "kind": "bulk", "columns": {"n": "long", "d": "decimal(5,2)"}})
MARK = "0a1b2c3d"


def written(plan: FilePlan, rows: pa.Table) -> list[WrittenFile]:
    with FileWriter(pickle.loads(pickle.dumps(plan))) as writer:  # noqa: S301 - as on its way to a task
        writer.write(rows)
    return writer.written


def typed(name: str) -> TableSpec:
    return parse_table({"name": "main.things", "kind": "bulk", "columns": {"n": name, "d": "decimal(5,2)"}})


def test_files_are_there_before_their_table(lake: Lake) -> None:
    location = draft_location(lake, SPEC.name, MARK)
    plan = plan_draft_files(lake, SPEC, location)
    files = written(plan, pa.table({"n": [1, 2]}))
    assert lake.names() == [] and local_path(files[0].path).is_relative_to(local_path(location))
    table = lake.create_bulk(SPEC, location=location)
    assert holds(plan, table)
    publish_load(lake, SPEC.name, Load("a", 2), files)
    assert lake.table(SPEC.name).iceberg.scan().to_arrow()["n"].to_pylist() == [1, 2]


def test_a_table_of_another_type_or_place_is_another(lake: Lake) -> None:
    location = draft_location(lake, SPEC.name, MARK)
    supposed = plan_draft_files(lake, typed("string"), location)
    files = written(supposed, pa.table({"n": ["1"]}))
    table = lake.create_bulk(SPEC, location=location)
    assert not holds(supposed, table)
    assert not holds(plan_draft_files(lake, SPEC, lake.new_location(SPEC.name)), table)
    discard(supposed, files)
    assert not local_path(files[0].path).exists()
    discard(supposed, files)


def test_files_are_there_before_their_table_grows(lake: Lake) -> None:
    table = lake.create_bulk(SPEC)
    grown = table.spec.with_columns(
        {"d": Column(ColumnType("decimal", 18, 2)), "s": Column(ColumnType("string")), "b": Column(ColumnType("bool"))}
    )
    plan = plan_extended_files(lake, table, grown)
    files = written(plan, pa.table({"n": [1], "s": ["x"]}))
    assert not holds(plan, lake.table(SPEC.name)) and set(lake.table(SPEC.name).spec.columns) == {"n", "d"}
    assert holds(plan, lake.alter(SPEC.name, lambda spec: spec.with_columns(grown.columns)))
    publish_load(lake, SPEC.name, Load("a", 1), files)
    assert lake.table(SPEC.name).iceberg.scan().to_arrow().to_pylist() == [{"n": 1, "d": None, "s": "x", "b": None}]


def test_only_what_belongs_to_no_table_is_forgotten(lake: Lake) -> None:
    location = draft_location(lake, SPEC.name, MARK)
    (file,) = written(plan_draft_files(lake, SPEC, location), pa.table({"n": [1]}))
    forget_draft(lake, SPEC.name, MARK)
    assert not local_path(file.path).exists()
    forget_draft(lake, SPEC.name, MARK)
    plan = plan_draft_files(lake, SPEC, location)
    (file,) = written(plan, pa.table({"n": [1]}))
    lake.create_bulk(SPEC, location=location)
    forget_draft(lake, SPEC.name, MARK)
    assert local_path(file.path).exists()
    lake.drop(SPEC.name)
    forget_draft(lake, SPEC.name, MARK)
    assert local_path(file.path).exists(), "a dropped table keeps its files"
    assert draft_location(lake, SPEC.name, MARK) != location, "and its folder"


def test_values_that_do_not_repeat_have_no_dictionary(lake: Lake) -> None:
    table = lake.create_bulk(parse_table({"name": "t", "kind": "bulk", "columns": {"id": "long", "state": "string"}}))
    count = 20_000
    rows = pa.table({"id": range(count), "state": ["new", "used"] * (count // 2)})
    (file,) = written(plan_extended_files(lake, table, table.spec), rows)
    group = pq.ParquetFile(local_path(file.path)).metadata.row_group(0)
    assert [group.column(number).has_dictionary_page for number in range(2)] == [False, True]
    assert pq.read_table(local_path(file.path)).to_pydict() == rows.to_pydict()
