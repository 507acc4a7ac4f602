"""Tables of the lake with PyIceberg alone: declare, list, describe, alter, drop and bring back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, MonthTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events import first_position
from frazil.events.declaration import TableSpec, parse_table
from frazil.events.declaration.table_spec import SYSTEM_COLUMNS
from frazil.lake.catalog import Lake, LakeTable, changed_by, same_declaration
from tests.lake.staging import append
from tests.lake_fixtures import some_table

EVERY_TYPE = {
    "s": "string",
    "b": "bool",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "m": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
    "raw": "binary",
    "j": "json",
    "tags": "list<string>",
    "item": "struct<sku:string,price:decimal(9,2),parts:list<struct<n:int>>>",
    "counts": "map<string,list<long>>",
    "deep": "list<map<string,struct<a:list<date>,b:map<long,binary>>>>",
}


def make(lake: Lake, spec: TableSpec | None = None, **declared: Any) -> LakeTable:
    return lake.create(spec or some_table(**declared), stream="a_stream", identity="an-identity")


def test_a_table_is_found_again_as_it_was_declared(lake: Lake, open_again: Callable[[], Lake]) -> None:
    spec = some_table(
        name="sales.orders",
        columns={**EVERY_TYPE, "mail": {"type": "string", "required": True, "sensitivity": "pii", "description": "to"}},
        key=["s"],
        partition=["day(_ts)", "bucket(16,s)"],
        unknown_fields="keep",
        description="orders – all of them",
        owner="müller",
        tags=["a", "b"],
        text=["s"],
        freshness_target_seconds=2.5,
    )
    make(lake, spec)
    another = open_again()
    found = another.table("sales.orders")
    another.close()
    assert found.spec == spec and found.spec.declared() == spec.declared()
    assert (found.stream, found.stream_identity) == ("a_stream", "an-identity")
    assert (found.watermark, found.rows, found.files, found.bytes) == (first_position(1), 0, 0, 0)
    assert found.snapshot_id is None and found.last_commit_at is None and found.snapshots() == []
    assert lake.names() == ["sales.orders"]
    assert found.iceberg.schema().find_field("mail").doc == "to"


def test_a_table_may_begin_later_in_its_stream(lake: Lake) -> None:
    spec = some_table()
    assert lake.create(spec, stream="s", identity="i", first_sequence=41).watermark == first_position(41)


def test_every_type_has_its_iceberg_type(lake: Lake) -> None:
    schema = make(lake, columns=EVERY_TYPE, unknown_fields="keep").iceberg.schema()
    plain = {
        "s": StringType(),
        "b": BooleanType(),
        "i": IntegerType(),
        "l": LongType(),
        "f": FloatType(),
        "d": DoubleType(),
        "m": DecimalType(38, 10),
        "day": DateType(),
        "at": TimestamptzType(),
        "raw": BinaryType(),
        "j": StringType(),
        "item.price": DecimalType(9, 2),
        "item.parts.element.n": IntegerType(),
        "counts.value.element": LongType(),
        "deep.element.value.a.element": DateType(),
        "deep.element.value.b.key": LongType(),
        "_extra": StringType(),
    }
    for name, expected in plain.items():
        assert schema.find_field(name).field_type == expected, name
    assert [field.name for field in schema.fields] == [*(f.name for f in SYSTEM_COLUMNS), *EVERY_TYPE, "_extra"]
    assert len(set(schema.field_ids)) == len(schema.field_ids)


def test_arrow_and_iceberg_agree_on_every_type(lake: Lake) -> None:
    """Rows of the declared Arrow schema go into the table and come out as they were."""
    table = make(lake, columns=EVERY_TYPE, unknown_fields="keep")
    at = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    values: dict[str, Any] = {
        "s": "ü",
        "b": True,
        "i": -(2**31),
        "l": 2**53 + 1,
        "f": 0.5,
        "d": 0.1,
        "m": Decimal("1234567890123456789012345678.0123456789"),
        "day": at.date(),
        "at": at,
        "raw": b"\x00\xff",
        "j": '{"a":1e400}',
        "tags": ["a", None],
        "item": {"sku": "x", "price": Decimal("1.10"), "parts": [{"n": 1}]},
        "counts": [("k", [1])],
        "deep": [[("k", {"a": [at.date()], "b": [(1, b"x")]})]],
        "_extra": "{}",
    }
    append(lake, table.name, [values, dict.fromkeys(values)])
    rows = lake.table(table.name).rows_at([first_position(1), first_position(1) + 1])
    assert rows.schema.equals(table.spec.row_schema())
    for name, value in values.items():
        assert rows[name].to_pylist() == [value, None], name


@pytest.mark.parametrize(
    ("partition", "transform"),
    [
        ("s", IdentityTransform()),
        ("_workspace", IdentityTransform()),
        ("day(at)", DayTransform()),
        ("hour(_ts)", HourTransform()),
        ("month(day)", MonthTransform()),
        ("bucket(7,raw)", BucketTransform(7)),
    ],
)
def test_every_partition_has_its_iceberg_transform(lake: Lake, partition: str, transform: object) -> None:
    table = make(lake, columns=EVERY_TYPE, partition=[partition])
    (field,) = table.iceberg.spec().fields
    column = table.spec.partition[0].column
    assert field.transform == transform
    assert field.source_id == table.iceberg.schema().find_field(column).field_id
    assert [str(part) for part in lake.table(table.name).spec.partition] == [partition]


def test_two_partitions_of_one_column(lake: Lake) -> None:
    table = make(lake, columns=EVERY_TYPE, partition=["month(at)", "hour(at)", "bucket(4,s)", "s"])
    names = [field.name for field in table.iceberg.spec().fields]
    assert len(set(names)) == 4


def test_the_properties_that_the_commit_relies_on(lake: Lake) -> None:
    properties = make(lake).properties
    assert properties["write.wap.enabled"] == "true"
    assert properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert lake.table(lake.names()[0]).iceberg.format_version == 2


def test_properties_set_by_hand_survive_an_alter(lake: Lake) -> None:
    table = make(lake)
    lake.set_properties(table.name, {"write.target-file-size-bytes": "1000"})
    lake.alter(table.name, changed_by({"description": "new"}))
    after = lake.table(table.name)
    assert after.properties["write.target-file-size-bytes"] == "1000" and after.spec.description == "new"


def test_a_taken_name_is_a_conflict(lake: Lake) -> None:
    table = make(lake)
    with pytest.raises(Conflict) as refused:
        make(lake, table.spec)
    assert refused.value.code == "table_exists"


def test_no_such_table(lake: Lake) -> None:
    for call in (lake.table, lake.drop, lake.undrop, lambda name: lake.alter(name, lambda spec: spec)):
        with pytest.raises(NotFound) as refused:
            call("main.nothing")
        assert refused.value.code == "table_not_found" and refused.value.hint


def test_a_table_that_is_not_ours_is_left_alone(lake: Lake) -> None:
    lake.catalog.create_namespace_if_not_exists("main")
    lake.catalog.create_table("main.theirs", make(lake).iceberg.schema())
    with pytest.raises(NotFound) as refused:
        lake.table("main.theirs")
    assert refused.value.code == "foreign_table"


def test_columns_are_added_and_widened(lake: Lake) -> None:
    table = make(lake, columns={"i": "int", "f": "float", "m": "decimal(9,2)"})
    ids = {field.name: field.field_id for field in table.iceberg.schema().fields}
    append(lake, table.name, [{"i": 1, "f": 0.5, "m": Decimal("1.10")}])
    request = {
        "widen": {"i": "long", "f": "double", "m": "decimal(20,2)"},
        "add_columns": {
            "tags": "list<struct<a:int,b:map<string,date>>>",
            "note": {"type": "string", "description": "words", "sensitivity": "pii"},
        },
        "owner": "me",
        "tags": ["x"],
        "freshness_target_seconds": 3.0,
    }
    after = lake.alter(table.name, changed_by(request))
    schema = after.iceberg.schema()
    assert schema.find_field("i").field_type == LongType()
    assert schema.find_field("f").field_type == DoubleType()
    assert schema.find_field("m").field_type == DecimalType(20, 2)
    assert schema.find_field("note").doc == "words"
    assert {name: schema.find_field(name).field_id for name in ids} == ids, "columns are followed by id"
    assert (after.spec.owner, after.spec.tags, after.spec.freshness_target_seconds) == ("me", ("x",), 3.0)
    assert after.spec.columns["note"].sensitivity == "pii"
    append(lake, table.name, [{"i": 2**40, "tags": [{"a": 1, "b": []}], "note": "x"}])
    rows = lake.table(table.name).rows_at([first_position(1), first_position(2)])
    assert rows["i"].to_pylist() == [1, 2**40] and rows["m"].to_pylist() == [Decimal("1.10"), None]
    assert rows["note"].to_pylist() == [None, "x"]


def test_an_added_column_of_a_table_that_keeps_unknown_fields(lake: Lake) -> None:
    table = make(lake, unknown_fields="keep")
    lake.alter(table.name, changed_by({"add_columns": {"note": "string"}}))
    append(lake, table.name, [{"v": 1, "note": "x", "_extra": "{}"}])
    rows = lake.table(table.name).rows_at([first_position(1)])
    assert rows["note"].to_pylist() == ["x"] and rows["_extra"].to_pylist() == ["{}"]


def test_an_alter_that_changes_nothing_commits_nothing(lake: Lake) -> None:
    table = make(lake)
    assert lake.alter(table.name, changed_by({"widen": {"v": "long"}})).metadata_location == table.metadata_location
    assert lake.table(table.name).metadata_location == table.metadata_location


@pytest.mark.parametrize(
    ("request_body", "error", "code"),
    [
        ({"widen": {"v": "int"}}, Conflict, "cannot_widen"),
        ({"widen": {"v": "string"}}, Conflict, "cannot_widen"),
        ({"widen": {"m": "decimal(9,3)"}}, Conflict, "cannot_widen"),
        ({"widen": {"m": "decimal(8,2)"}}, Conflict, "cannot_widen"),
        ({"widen": {"no": "long"}}, NotFound, "column_not_found"),
        ({"add_columns": {"v": "string"}}, Conflict, "column_exists"),
        ({"add_columns": {"n": {"type": "string", "required": True}}}, Conflict, "new_column_required"),
        ({"add_columns": {"Bad": "string"}}, InvalidInput, "bad_column_name"),
        ({"add_columns": {"n": "varchar"}}, InvalidInput, "bad_type"),
        ({"add_columns": {f"c{i}": "long" for i in range(1000)}}, InvalidInput, "too_many_columns"),
    ],
)
def test_refused_alters_leave_everything_as_it_was(
    lake: Lake, request_body: dict[str, Any], error: type[Exception], code: str
) -> None:
    table = make(lake, columns={"v": "long", "m": "decimal(9,2)"})
    with pytest.raises(error) as refused:
        lake.alter(table.name, changed_by(request_body))
    assert getattr(refused.value, "code", None) == code
    assert lake.table(table.name).metadata_location == table.metadata_location


def test_a_dropped_table_is_out_of_sight_and_comes_back_with_its_rows(lake: Lake) -> None:
    table = make(lake)
    append(lake, table.name, [{"v": 7}])
    before = lake.table(table.name)
    lake.drop(table.name)
    assert lake.names() == [] and list(lake.dropped()) == [table.name]
    with pytest.raises(NotFound):
        lake.table(table.name)
    back = lake.undrop(table.name)
    assert (back.uuid, back.snapshot_id, back.rows) == (before.uuid, before.snapshot_id, 1)
    assert back.properties == before.properties, "no mark of the drop is left"
    assert lake.dropped() == {} and lake.names() == [table.name]
    assert lake.table(table.name).rows_at([first_position(1)])["v"].to_pylist() == [7]
    lake.alter(table.name, changed_by({"description": "still changeable"}))


def test_several_drops_of_one_name_come_back_newest_first(lake: Lake) -> None:
    spec = some_table()
    uuids = []
    for _ in range(3):
        uuids.append(make(lake, spec).uuid)
        lake.drop(spec.name)
    assert len(lake.dropped()[spec.name]) == 3
    found = []
    for _ in range(3):
        found.append(lake.undrop(spec.name).uuid)
        lake.drop(spec.name)
        # The one that came back is now the newest again: move it away to see the next.
        lake.catalog.rename_table(f"dropped.{lake.dropped()[spec.name][0]}", f"main.seen{len(found)}")
    assert found == uuids[::-1]


def test_undrop_does_not_run_over_a_new_table_of_the_name(lake: Lake) -> None:
    spec = some_table()
    old = make(lake, spec)
    lake.drop(spec.name)
    new = make(lake, spec)
    assert new.uuid != old.uuid and new.iceberg.location() != old.iceberg.location()
    with pytest.raises(Conflict) as refused:
        lake.undrop(spec.name)
    assert refused.value.code == "table_exists" and refused.value.hint
    assert lake.table(spec.name).uuid == new.uuid and list(lake.dropped()) == [spec.name]
    lake.drop(spec.name)
    assert len(lake.dropped()[spec.name]) == 2


@pytest.mark.parametrize("name", ["main.a__b", "x__y.t__1", "a__.b", "a.b__c__2"])
def test_names_with_underscores_come_back_as_themselves(lake: Lake, name: str) -> None:
    table = make(lake, replace(some_table(), name=name))
    lake.drop(name)
    assert list(lake.dropped()) == [name]
    assert lake.undrop(name).uuid == table.uuid


def test_changes_of_another_process_are_seen(lake: Lake, open_again: Callable[[], Lake]) -> None:
    here, there = lake, open_again()
    table = make(here)
    assert there.locations() == {table.name: table.metadata_location}
    before = there.table(table.name, location=there.locations()[table.name])
    assert there.table(table.name, location=there.locations()[table.name]) is before, "nothing changed: not read again"
    here.alter(table.name, changed_by({"description": "new"}))
    location = there.locations()[table.name]
    assert location != before.metadata_location
    assert there.table(table.name, location=location).spec.description == "new"
    here.drop(table.name)
    assert there.locations() == {}
    there.close()


def test_many_threads_lose_nothing(lake: Lake, open_again: Callable[[], Lake]) -> None:
    """Four lakes as four processes have them, two threads each, add columns while others set properties."""
    table = make(lake)
    lakes = [lake, *(open_again() for _ in range(3))]
    start = threading.Barrier(8)

    def change(number: int) -> None:
        start.wait(30)
        for i in range(2):
            mine = lakes[number % 4]
            if number < 4:
                mine.alter(table.name, changed_by({"add_columns": {f"c{number}_{i}": "long"}}))
            else:
                mine.set_properties(table.name, {f"p{number}_{i}": "set"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    after = lake.table(table.name)
    assert set(after.spec.columns) == {"v", *(f"c{number}_{i}" for number in range(4) for i in range(2))}
    assert {name for name in after.properties if name[0] == "p"} == {f"p{n}_{i}" for n in range(4, 8) for i in range(2)}
    assert {field.name for field in after.iceberg.schema().fields} >= set(after.spec.columns)
    for opened in lakes[1:]:
        opened.close()


def test_one_of_many_creators_wins(lake: Lake) -> None:
    spec = some_table()
    start = threading.Barrier(4)

    def create(_: int) -> str:
        start.wait(30)
        try:
            return make(lake, spec).uuid
        except Conflict as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(create, range(4)))
    assert sorted(results)[-3:] == ["table_exists"] * 3
    assert lake.table(spec.name).uuid in results


def spec_of(**declared: Any) -> TableSpec:
    return parse_table({"name": "t", "columns": {"a": "int"}, **declared})


@pytest.mark.parametrize(
    ("existing", "wanted", "same"),
    [
        ({}, {}, True),
        ({}, {"columns": {"a": "long"}}, False),
        ({}, {"columns": {"a": "int", "b": "int"}}, False),
        ({"columns": {"a": "int", "b": "int"}}, {}, False),
        ({"description": "x"}, {}, False),
        ({"unknown_fields": "evolve"}, {}, False),
        ({"unknown_fields": "evolve"}, {"unknown_fields": "evolve"}, True),
        ({"unknown_fields": "evolve", "columns": {"a": "long", "b": "int"}}, {"unknown_fields": "evolve"}, True),
        ({"unknown_fields": "evolve", "columns": {"b": "int"}}, {"unknown_fields": "evolve"}, False),
        ({"unknown_fields": "evolve", "columns": {"a": "string"}}, {"unknown_fields": "evolve"}, False),
        ({"unknown_fields": "evolve", "owner": "x"}, {"unknown_fields": "evolve"}, False),
    ],
)
def test_declaring_again(existing: dict[str, Any], wanted: dict[str, Any], same: bool) -> None:
    assert same_declaration(spec_of(**existing), spec_of(**wanted)) is same


def test_the_catalog_file_is_for_its_owner_alone(lake: Lake, tmp_path: Path) -> None:
    if (tmp_path / "catalog.db").exists():
        assert (tmp_path / "catalog.db").stat().st_mode & 0o077 == 0
