"""Large batches reach Spark through a file: the same rows arrive, whatever their types, and the file does not stay."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile

from frazil.bus.memory import MemoryBus
from frazil.errors import Unavailable
from frazil.events.declaration import parse_table
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget, target
from frazil.storage import local_path
from tests.lake_fixtures import SparkLake, declare, events, send, some_table, stored_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TYPES = {
    "s": "string",
    "b": "bool",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "m": "decimal(38,10)",
    "m9": "decimal(9,2)",
    "day": "date",
    "at": "timestamp",
    "raw": "binary",
    "j": "json",
    "tags": "list<string>",
    "item": "struct<sku:string,price:decimal(9,2)>",
    "counts": "map<string,long>",
    "nested": "list<struct<k:string,v:list<long>>>",
}
LONG_AGO = datetime(1066, 10, 14, 9, 0, 0, 1, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "s": ["ü\x00", None, ""],
    "b": [True, None, False],
    "i": [-(2**31), None, 2**31 - 1],
    "l": [2**63 - 1, None, -(2**63)],
    "f": [0.5, None, -0.0],
    "d": [0.1, None, 1e308],
    "m": [Decimal("1234567890123456789012345678.0123456789"), None, Decimal("-0.0000000001")],
    "m9": [Decimal("-1234567.89"), None, Decimal("0.00")],
    "day": [date(2026, 2, 3), None, date(1066, 10, 14)],
    "at": [datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC), None, LONG_AGO],
    "raw": [b"\x00\xff", None, b""],
    "j": ['{"a":1e400}', None, "null"],
    "tags": [["a", None], None, []],
    "item": [{"sku": "x", "price": Decimal("1.10")}, None, {"sku": None, "price": None}],
    "counts": [[("k", 1)], None, []],
    "nested": [[{"k": "a", "v": [1, None]}, None], None, [{"k": None, "v": []}]],
}


@pytest.mark.parametrize("in_memory_bytes", [0, 1 << 40], ids=["in a file", "in memory"])
async def test_every_type_arrives_unchanged(
    spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    monkeypatch.setattr(target, "IN_MEMORY_BYTES", in_memory_bytes)
    spec = parse_table({"name": f"types_{in_memory_bytes}", "columns": TYPES, "partition": ["bucket(2,s)"]})
    table, stream = await declare(spark_lake.lake, MemoryBus(), spec)
    await send(stream, events(spec, ["full", "null", "edge"], **VALUES))
    await commit(spark_lake, table.name, stream)
    stored = pa.concat_tables(files_of(spark_lake, table.name)).sort_by("_seq")
    for name, expected in VALUES.items():
        assert stored[name].to_pylist() == expected, name
    assert handed_over(spark_lake) == []


async def test_a_large_batch_becomes_few_files(spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(target, "_ROWS_PER_GROUP", 10)
    monkeypatch.setattr(target, "_ROWS_PER_FILE", 50)
    table, stream = await declare(spark_lake.lake, MemoryBus())
    ids = [f"e{number:03d}" for number in range(100)]
    await send(stream, events(table.spec, ids, v=list(range(100))))
    await commit(spark_lake, table.name, stream)
    assert stored_ids(spark_lake.lake, table.name) == ids
    assert spark_lake.lake.table(table.name).files <= 2


async def test_no_room_for_the_file_is_said(spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target, "IN_MEMORY_BYTES", 0)
    table, stream = await declare(spark_lake.lake, MemoryBus(), some_table())
    await send(stream, events(table.spec, ["a"], v=[1]))
    with monkeypatch.context() as patch:
        patch.setattr(target, "write_table", full)
        with pytest.raises(Unavailable, match="No space left"):
            await commit(spark_lake, table.name, stream)
    assert handed_over(spark_lake) == []
    await commit(spark_lake, table.name, stream)
    assert stored_ids(spark_lake.lake, table.name) == ["a"]


async def commit(spark_lake: SparkLake, name: str, stream: object) -> None:
    spark = SparkCommitTarget(spark_lake.lake, name, spark_lake.session)
    committer = Committer(spark, stream, window_seconds=3600, limits=BatchLimits(max_age_seconds=0.0))  # type: ignore[arg-type]
    assert await committer.cycle() is not None


def files_of(spark_lake: SparkLake, name: str) -> list[pa.Table]:
    """What is in the data files themselves: a PyIceberg scan reads a null list of structs as an empty one."""
    tasks = spark_lake.lake.table(name).iceberg.scan().plan_files()
    return [ParquetFile(local_path(task.file.file_path)).read() for task in tasks]


def handed_over(spark_lake: SparkLake) -> list[Path]:
    return list(Path(spark_lake.session.sparkContext._temp_dir).glob("stage-*"))
