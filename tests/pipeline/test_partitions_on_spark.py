"""Partitions on real Spark: thousands in one batch within the heap of the product, and values that look like paths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from frazil.bus.memory import MemoryBus
from frazil.events import first_position
from frazil.events.declaration import parse_table
from frazil.lake.catalog import LakeTable, create_entity
from frazil.lake.catalog.schema import FANOUT
from frazil.lake.commit import Outcome
from frazil.pipeline.commit import SparkCommitTarget
from frazil.pipeline.commit.target import Commit, is_spread, stage
from frazil.pipeline.entities import FoldCommitter
from frazil.storage import Warehouse, local_path
from tests.contract.seaweed import SeaweedServer
from tests.lake_fixtures import SparkLake, declare, events, some_table
from tests.store_fixtures import Store, duckdb_rows, open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3000
FOLDED = 400
OPENED = 400
HEAP_RATIO = 4.0
"""Of each file a description is kept until the commit, some 10 KB in several copies; an open file takes a megabyte."""
FIRST = datetime(2000, 1, 1, tzinfo=UTC)


def numbered(table: LakeTable, count: int, **columns: Any) -> pa.Table:
    """Rows as a committer hands them over, from the first message of the stream."""
    ids = [f"e{number:05d}" for number in range(count)]
    rows = pa.Table.from_batches([events(table.spec, ids, **columns)])
    return rows.add_column(
        0, table.spec.row_schema().field("_seq"), pa.array(range(first_position(1), first_position(1) + count))
    )


def commit(target: SparkCommitTarget, rows: pa.Table) -> None:
    base = target.load()
    outcome, _ = target.commit(base, Commit("b", base.watermark, first_position(2), rows))
    assert outcome is Outcome.PUBLISHED


def held_heap(session: SparkSession, work: Callable[[], object]) -> int:
    """The most bytes that were in use right after a collection, several of which are asked for while it works."""
    jvm: Any = session._jvm
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    (old,) = [pool for pool in pools if "Old" in pool.getName() or "Tenured" in pool.getName()]
    ended = threading.Event()
    found: list[int] = []

    def collect() -> None:
        while not found or not ended.wait(0.3):
            jvm.java.lang.System.gc()
            found.append(int(old.getCollectionUsage().getUsed()))

    collecting = threading.Thread(target=collect)
    collecting.start()
    try:
        work()
    finally:
        ended.set()
        collecting.join()
    return max(found)


async def test_thousands_of_partitions_in_one_batch_take_no_more_heap_than_one(spark_lake: SparkLake) -> None:
    """Two events each: before, 1,200 partitions of one event ended the JVM with an OutOfMemoryError."""
    count = 2 * PARTITIONS
    held = {}
    for partitions in (1, PARTITIONS):
        spec = some_table(columns={"at": "timestamp"}, partition=["day(at)"])
        table, _ = await declare(spark_lake.lake, MemoryBus(), spec)
        rows = numbered(table, count, at=[FIRST + timedelta(days=n % partitions, seconds=n) for n in range(count)])
        assert is_spread(table.spec, rows) is (partitions > 1)
        target = SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session)
        held[partitions] = held_heap(spark_lake.session, partial(commit, target, rows))
    committed = spark_lake.lake.table(table.name)
    assert committed.rows == count and committed.watermark == first_position(2)
    found = duckdb_rows(committed, spark_lake.lake.warehouse)
    assert found == list(zip(rows["_seq"].to_pylist(), rows["_id"].to_pylist(), strict=True))
    files = list(committed.iceberg.scan().plan_files())
    assert len(files) == PARTITIONS, "a file for each partition"
    for file in files[:50]:
        positions = pq.ParquetFile(local_path(file.file.file_path)).read(["_seq"])["_seq"].to_pylist()
        assert len(positions) == 2 and positions == sorted(positions)
    assert held[PARTITIONS] <= HEAP_RATIO * held[1], held


async def test_a_file_that_is_open_for_each_partition_is_what_fills_the_heap(spark_lake: SparkLake) -> None:
    """What the two tests beside this one measure would be seen: the same write without sorting, of far fewer."""
    held = []
    for partitions in (1, OPENED):
        spec = some_table(columns={"at": "timestamp"}, partition=["day(at)"])
        table, _ = await declare(spark_lake.lake, MemoryBus(), spec)
        rows = numbered(table, OPENED, at=[FIRST + timedelta(days=n % partitions) for n in range(OPENED)])
        session, name = spark_lake.session.newSession(), f"frazil.{table.name}"
        append = partial(stage, session, name, rows, wap_id="b", summary={})
        held.append(held_heap(spark_lake.session, append))
    assert held[1] > HEAP_RATIO * held[0], held


async def test_a_fold_into_many_partitions_takes_no_more_heap_than_into_none(spark_lake: SparkLake) -> None:
    """Also into a base of an earlier version, which was declared to have a file open for each partition."""
    held = {}
    for partition in ([], ["k"]):
        spec = some_table(kind="entity", key=["k"], columns={"k": "long"}, partition=partition)
        entity = create_entity(spark_lake.lake, spec, stream=spec.short_name, identity="one")
        spark_lake.lake.set_properties(entity.base.name, {FANOUT: "true"})
        rows = numbered(entity.history, FOLDED, _op=["upsert"] * FOLDED, k=list(range(FOLDED)))
        commit(SparkCommitTarget(spark_lake.lake, entity.history.name, spark_lake.session), rows)
        folder = FoldCommitter(spark_lake.lake, entity.base.name, spark_lake.session)
        held[len(partition)] = held_heap(spark_lake.session, folder.fold)
    base = spark_lake.lake.table(entity.base.name)
    assert sorted(base.iceberg.scan(selected_fields=("k",)).to_arrow()["k"].to_pylist()) == list(range(FOLDED))
    assert base.iceberg.properties[FANOUT] == "false"
    assert held[1] <= HEAP_RATIO * held[0], held


TEXTS = [
    *r""". .. / a/b = a=b null None %2F % + # ? & \ : ~ * ' " ` $x A a - 0 true 2024-01-01 """.split(),
    *["", " ", "a b", "\x00", "\x01", "\n", "\x7f", "ü", "😀", "\ufeff", "\u202e", "e\u0301", "é", None],
    *["__HIVE_DEFAULT_PARTITION__", "x" * 253, "ü" * 42],
]
DAYS = [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31), None]
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 10, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    None,
]
DECIMALS = [Decimal("0E-10"), Decimal("-0.0000000001"), Decimal("1234567890123456789012345678.0123456789"), None]
CASES: list[tuple[str, str, list[Any]]] = [
    ("string", "p", TEXTS),
    ("string", "bucket(8,p)", TEXTS),
    ("binary", "p", [b"", b"\x00", b"\xff\xfe", b"/", b"a" * 180, None]),
    ("bool", "p", [True, False, None]),
    ("long", "p", [2**63 - 1, -(2**63), 0, None]),
    ("decimal(38,10)", "p", DECIMALS),
    ("date", "p", DAYS),
    ("date", "month(p)", DAYS),
    ("timestamp", "p", MOMENTS),
    *(("timestamp", f"{unit}(p)", MOMENTS) for unit in ("day", "hour", "month")),
]


async def round_trip(store: Store, kind: str, partition: str, values: list[Any]) -> None:
    name = f"p{CASES.index((kind, partition, values))}"
    spec = parse_table({"name": name, "columns": {"p": kind}, "partition": [partition]})
    table, _ = await declare(store.lake, MemoryBus(), spec)
    commit(store.target(table), numbered(table, len(values), p=values))
    stored = store.lake.table(table.name)
    assert stored.iceberg.scan().to_arrow().sort_by("_seq")["p"].to_pylist() == values, "PyIceberg"
    found = [row[0] for row in duckdb_rows(stored, store.lake.warehouse, "p")]
    assert [value.astimezone(UTC) if isinstance(value, datetime) else value for value in found] == values, "DuckDB"


@pytest.mark.parametrize(("kind", "partition", "values"), CASES, ids=[f"{kind} {part}" for kind, part, _ in CASES])
async def test_values_come_back_from_a_folder(
    spark_lake: SparkLake, folder_store: Store, kind: str, partition: str, values: list[Any]
) -> None:
    await round_trip(folder_store, kind, partition, values)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("kind", "partition", "values"), CASES[:3], ids=[f"{kind} {part}" for kind, part, _ in CASES[:3]]
)
async def test_values_come_back_from_a_bucket(
    bucket_store: Store, kind: str, partition: str, values: list[Any]
) -> None:
    await round_trip(bucket_store, kind, partition, values)


@pytest.fixture(scope="module")
def folder_store(spark_lake: SparkLake, tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("values")
    return open_store(
        spark_lake.session, "values", f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse")
    )


@pytest.fixture(scope="module")
def bucket_store(spark_lake: SparkLake, seaweed: SeaweedServer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("bucket")
    return open_store(spark_lake.session, "bucket", f"sqlite:///{folder}/catalog.db", seaweed.warehouse("values"))


def test_new_files_get_their_permissions_without_a_process(spark_lake: SparkLake, tmp_path: Path) -> None:
    """The class that does so is the one that Iceberg opens, and it makes files as Hadoop's own does."""
    jvm: Any = spark_lake.session._jvm
    settings = spark_lake.session._jsparkSession.sessionState().newHadoopConf()
    made = {}
    for name in ("frazil.LocalFiles", "org.apache.hadoop.fs.LocalFileSystem"):
        settings.set("fs.file.impl", name)
        settings.set("fs.file.impl.disable.cache", "true")
        path = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/{name}/a/rows")
        files = path.getFileSystem(settings)
        assert files.getClass().getName() == name
        files.create(path, False).close()
        made[name] = [(Path(tmp_path, name, inner).stat().st_mode) for inner in ("a", "a/rows", "a/.rows.crc")]
    assert made["frazil.LocalFiles"] == made["org.apache.hadoop.fs.LocalFileSystem"]
    conf = spark_lake.session.conf
    assert conf.get("spark.sql.catalog.frazil.hadoop.fs.file.impl") == "frazil.LocalFiles"
