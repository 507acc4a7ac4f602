"""Partitions of a batch: counted as Iceberg tells them apart, and refused where no store could name their folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionFieldValue as FieldValue
from pyiceberg.partitioning import PartitionKey

from frazil.errors import BadEvents, FrazilError, InvalidInput
from frazil.events.declaration import TableSpec, count_partitions, parse_table, unfit_for_folder
from frazil.events.decoding import Limits, decode_events
from frazil.lake.catalog.schema import iceberg_schema, partition_spec
from tests.events.bodies import ARROW, JSON, NDJSON, RECEIVED_AT

_MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
_NEAR = st.datetimes(datetime(1969, 12, 30), datetime(1970, 1, 3), timezones=st.just(UTC))


def spec_of(*partition: str, **columns: str) -> TableSpec:
    return parse_table({"name": "t", "columns": columns or {"p": "string", "at": "timestamp"}, "partition": partition})


@given(st.lists(st.tuples(st.none() | _MOMENTS | _NEAR, st.none() | st.sampled_from("abc")), min_size=1, max_size=60))
def test_partitions_are_counted_as_iceberg_tells_them_apart(values: list[tuple[datetime | None, str | None]]) -> None:
    spec = spec_of("day(at)", "p")
    rows = pa.record_batch(
        {
            "at": pa.array([at for at, _ in values], pa.timestamp("us", "UTC")),
            "p": pa.array([p for _, p in values], pa.string()),
        }
    )
    expected = {(None if at is None else at.date(), p) for at, p in values}
    assert count_partitions(spec.partition, rows) == len(expected)
    hours = {None if at is None else at.replace(minute=0, second=0, microsecond=0) for at, _ in values}
    months = {None if at is None else (at.year, at.month) for at, _ in values}
    assert count_partitions(spec_of("hour(at)").partition, rows) == len(hours)
    assert count_partitions(spec_of("month(at)").partition, rows) == len(months)
    assert count_partitions(spec_of("bucket(2,p)").partition, rows) <= 3
    assert count_partitions((), rows) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("long", [1, 2, None, 1]),
        ("bool", [True, False, None, True]),
        ("decimal(9,2)", [Decimal("1.10"), Decimal("2.20"), None, Decimal("1.10")]),
        ("date", [date(1, 1, 1), date(9999, 12, 31), None, date(1, 1, 1)]),
        ("binary", [b"a", b"", None, b"a"]),
    ],
)
def test_values_of_every_type_are_told_apart(kind: str, values: list[Any]) -> None:
    spec = spec_of("p", "q", p=kind, q="string")
    rows = pa.record_batch({"p": pa.array(values, spec.columns["p"].type.arrow), "q": pa.array(["x"] * 4, pa.string())})
    assert count_partitions(spec.partition, rows) == 3


@given(st.text(max_size=300) | st.text("a*~ü/ ", max_size=300))
def test_the_length_of_a_folder_is_that_of_the_longer_writer(value: str) -> None:
    """PyIceberg's name for the folder, and Java's, which does the same but for two characters."""
    spec = spec_of("p")
    schema = iceberg_schema(spec)
    fields = partition_spec(spec, schema)
    key = PartitionKey([FieldValue(fields.fields[0], value)], fields, schema)
    by_java = "p=" + quote_plus(value).replace("%2A", "*").replace("~", "%7E")
    longest = max(len(key.to_path()), len(by_java))
    is_unfit = len(unfit_for_folder(spec.partition, "p", pa.array([value], pa.string()))) == 1
    if longest > 255:
        assert is_unfit
    elif "*" not in value or "~" not in value:
        assert not is_unfit


def as_json(events: list[dict[str, Any]]) -> tuple[bytes, str]:
    return json.dumps({"events": [{"data": data} for data in events]}).encode(), JSON


def as_lines(events: list[dict[str, Any]]) -> tuple[bytes, str]:
    return b"".join(json.dumps({"data": data}).encode() + b"\n" for data in events), NDJSON


def as_arrow(events: list[dict[str, Any]]) -> tuple[bytes, str]:
    table = pa.Table.from_pylist(events)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes(), ARROW


@pytest.mark.parametrize("body", [as_json, as_lines, as_arrow])
@pytest.mark.parametrize("padding", [0, 60], ids=["exact path", "fast path"])
def test_a_value_that_no_folder_can_be_named_by_is_a_bad_event(
    body: Callable[[list[dict[str, Any]]], tuple[bytes, str]], padding: int
) -> None:
    spec = spec_of("p", p="string")
    good: list[dict[str, Any]] = [{"p": value} for value in ("x" * 253, "ü" * 42, "", None)]
    good += [{"p": f"{n} / .. = %2F"} for n in range(padding)]
    raw, content_type = body(good)
    decoded = decode_events(raw, content_type, spec, received_at=RECEIVED_AT, limits=Limits())
    assert len(decoded.partitions) == len(good)
    raw, content_type = body([*good, {"p": "x" * 254}, {"p": "ü" * 43}])
    with pytest.raises(BadEvents) as refused:
        decode_events(raw, content_type, spec, received_at=RECEIVED_AT, limits=Limits())
    found = [(detail["index"], detail["field"]) for detail in refused.value.details]
    assert found == [(len(good), "data.p"), (len(good) + 1, "data.p")]
    assert "255 bytes" in refused.value.details[0]["reason"]


def test_fields_of_the_envelope_can_be_partitions_too() -> None:
    spec = spec_of("_source")
    body, content_type = json.dumps({"events": [{"source": "/" * 90, "data": {}}]}).encode(), JSON
    with pytest.raises(BadEvents) as refused:
        decode_events(body, content_type, spec, received_at=RECEIVED_AT, limits=Limits())
    assert refused.value.details[0]["field"] == "source"


def test_all_folders_of_a_partition_fit_into_the_key_of_an_object() -> None:
    spec = spec_of("a", "b", "c", "d", a="string", b="string", c="string", d="binary")
    long = pa.array(["x" * 174], pa.string())
    assert len(unfit_for_folder(spec.partition, "a", pa.array(["x" * 173], pa.string()))) == 0
    assert unfit_for_folder(spec.partition, "a", long).tolist() == [0]
    assert unfit_for_folder(spec.partition, "d", pa.array([b"x", b"\xff" * 100], pa.binary())).tolist() == [1]
    assert len(unfit_for_folder(spec_of("bucket(4,a)", a="string").partition, "a", long)) == 0


def test_an_entity_is_judged_by_the_partitions_of_its_base() -> None:
    entity = parse_table(
        {"name": "t", "kind": "entity", "key": ["k"], "columns": {"k": "long", "p": "string"}, "partition": ["p"]}
    )
    body = json.dumps({"events": [{"data": {"k": 1, "p": "x" * 300}}, {"op": "delete", "data": {"k": 2}}]}).encode()

    def decode(**words: Any) -> object:
        return decode_events(body, JSON, entity.history(), received_at=RECEIVED_AT, limits=Limits(), **words)

    decode()
    with pytest.raises(BadEvents):
        decode(partition=entity.partition)


def test_too_many_partitions_in_a_request() -> None:
    spec = spec_of("day(at)")
    days = [{"at": (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=n)).isoformat()} for n in range(11)]
    body, content_type = as_json([*days, *days])

    def decode(most: int) -> object:
        limits = Limits(max_partitions=most)
        return decode_events(body, content_type, spec, received_at=RECEIVED_AT, limits=limits)

    decode(11)
    with pytest.raises(InvalidInput) as refused:
        decode(10)
    error: FrazilError = refused.value
    assert (error.code, error.status) == ("too_many_partitions", 422)
    assert "11 partitions" in error.message and "month(at)" in error.hint
