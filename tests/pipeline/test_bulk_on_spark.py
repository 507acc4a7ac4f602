"""Bulk jobs on real Spark: tasks in worker processes, their errors, repeated values, and what another engine reads."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict, InvalidInput, Unavailable
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.catalog import LakeTable
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.jobs import SparkTasks
from frazil.pipeline.sources.csv import CsvLoads
from frazil.pipeline.sources.csv.scan import scan_file
from frazil.pipeline.sources.postgres.entity_diff import changed_and_gone
from frazil.registry import submit_job
from tests.lake_fixtures import SparkLake, declare, events, send
from tests.pipeline.in_process import KeptSender
from tests.store_fixtures import duckdb_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_numbers = itertools.count(1)


class Loading:
    def __init__(self, spark_lake: SparkLake, folder: Path) -> None:
        self.spark_lake = spark_lake
        self.folder = folder
        self.name = f"loaded{next(_numbers)}"
        self.loads = CsvLoads(spark_lake.lake, SparkTasks(spark_lake.session), self._make, KeptSender())

    def _make(self, spec: TableSpec, *, location: str | None = None) -> LakeTable:
        return self.spark_lake.lake.create(spec, stream="s", identity="i", location=location)

    def load(self, text: str, **options: Any) -> dict[str, Any]:
        path = self.folder / f"{next(_numbers)}.csv"
        path.write_text(text)
        params = {"table": self.name, "files": [str(path)], **options}
        job = submit_job(self.spark_lake.lake.registry, "csv", self.name, params)
        return self.loads.run(job, lambda progress: None)

    def rows(self, columns: str, suffix: str = "") -> list[tuple[object, ...]]:
        table = self.spark_lake.lake.table(f"main.{self.name}{suffix}")
        return duckdb_rows(table, self.spark_lake.lake.warehouse, columns, order="ALL")


@pytest.fixture
def loading(spark_lake: SparkLake, tmp_path: Path) -> Loading:
    return Loading(spark_lake, tmp_path)


def test_what_tasks_write_duckdb_and_spark_read(loading: Loading) -> None:
    lines = "".join(f"{n},{n / 8},2026-11-{1 + n % 28:02d},{n % 2 == 0}\n".lower() for n in range(20_000))
    told = loading.load("n,x,day,even\n" + lines)
    assert told["rows_out"] == 20_000
    assert loading.rows("count(*), sum(n), count(distinct _id)") == [(20_000, sum(range(20_000)), 20_000)]
    session = loading.spark_lake.session
    catalog = loading.spark_lake.lake.catalog.name
    by_spark = session.table(f"{catalog}.main.{loading.name}")
    assert by_spark.where("even").count() == 10_000
    assert dict(by_spark.dtypes)["x"] == "decimal(18,3)"


@pytest.mark.parametrize("partition", ["day(at)", "month(at)", "bucket(4,n)", "word"])
def test_partitions_are_those_of_the_table(loading: Loading, partition: str) -> None:
    declared = {"n": "long", "at": "timestamp", "word": "string"}
    spec = parse_table({"name": loading.name, "columns": declared, "partition": [partition]})
    loading.spark_lake.lake.create(spec, stream="s", identity="i")
    loading.load("n,at,word\n" + "".join(f"{n},2026-{1 + n % 3:02d}-05T10:00:00Z,w{n % 3}\n" for n in range(90)))
    table = loading.spark_lake.lake.table(f"main.{loading.name}")
    assert table.files == {"bucket(4,n)": 4}.get(partition, 3)
    catalog = loading.spark_lake.lake.catalog.name
    found = loading.spark_lake.session.sql(f"SELECT count(*), sum(n) FROM {catalog}.{table.name} WHERE word = 'w1'")
    assert tuple(found.first() or ()) == (30, sum(n for n in range(90) if n % 3 == 1))


def test_a_value_that_must_be_unique_is_there_once(loading: Loading) -> None:
    columns = {"id": {"type": "long", "checks": {"unique": True}}, "s": "string"}
    loading.load("id,s\n1,a\n2,b\n", columns=columns)
    told = loading.load("id,s\n2,again\n3,c\n3,twice\n,null\n,null\n4,d\n", max_bad="50%")
    assert (told["rows_out"], told["quarantined"]) == (4, 2)
    assert (
        loading.rows("id, s")
        == sorted([(1, "a"), (2, "b"), (3, "c"), (4, "d"), (None, "null"), (None, "null")], key=str)
        or len(loading.rows("id, s")) == 6
    )
    bad = loading.rows("line, column_name, raw", "__quarantine")
    assert bad == [(2, "id", "2,again"), (4, "id", "3,twice")]


def test_a_load_goes_on_beside_commits_of_the_same_table(spark_lake: SparkLake, loading: Loading) -> None:
    """Commits move the table all the time; the load is published between two of them, and nothing is lost."""

    async def committed() -> tuple[LakeTable, int]:
        table, stream = await declare(spark_lake.lake, MemoryBus())
        committer = Committer(
            SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session),
            stream,
            window_seconds=86_400,
            limits=BatchLimits(max_age_seconds=0.0),
        )
        loading.name = table.name.removeprefix("main.")
        lines = "".join(f"{n}\n" for n in range(50_000))
        done = threading.Event()
        told: list[dict[str, Any]] = []

        def load() -> None:
            try:
                told.append(loading.load("v\n" + lines))
            finally:
                done.set()

        thread = threading.Thread(target=load)
        thread.start()
        sent = 0
        while not done.is_set() and sent < 200:
            await send(stream, events(table.spec, [f"e{sent}"], v=[1]))
            assert await committer.cycle() is not None
            sent += 1
        thread.join(120)
        assert told and told[0]["rows_out"] == 50_000
        return spark_lake.lake.table(table.name), sent

    table, sent = asyncio.run(committed())
    assert sent > 0
    rows = duckdb_rows(table, spark_lake.lake.warehouse, "count(*), count(distinct _id)", order="ALL")
    assert rows == [(50_000 + sent, 50_000 + sent)]
    assert table.watermark > 0


def test_errors_of_tasks_come_back_as_they_are(spark_lake: SparkLake) -> None:
    tasks = SparkTasks(spark_lake.session)

    def fails(number: int) -> int:
        if number == 2:
            raise InvalidInput("two", code="bad_two", hint="not two", details={"n": 2})
        return number

    with pytest.raises(InvalidInput) as failed:
        tasks.run([1, 2, 3], fails, doing="count")
    assert (failed.value.code, failed.value.hint, failed.value.details) == ("bad_two", "not two", {"n": 2})

    def breaks(number: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(Unavailable) as broken:
        tasks.run([1], breaks, doing="count")
    assert broken.value.code == "bulk_failed"
    seen: list[int] = []
    assert tasks.run([1, 2, 3, 4], lambda n: n * n, doing="count", report_done=seen.append) == [1, 4, 9, 16]


def test_a_file_that_changes_under_a_load_publishes_nothing(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan_then_write(path: Path, *rest: Any, **options: Any) -> Any:
        found = scan_file(path, *rest, **options)
        with path.open("a") as file:
            file.write("9\n")
        return found

    monkeypatch.setattr("frazil.pipeline.sources.csv.handler.scan_file", scan_then_write)
    with pytest.raises(Conflict) as changed:
        loading.load("n\n1\n2\n")
    assert changed.value.code == "file_changed"


def test_the_difference_of_a_source_and_an_entity(spark_lake: SparkLake, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
    source = [
        {"id": 1, "name": "a", "tags": ["x"]},
        {"id": 2, "name": None, "tags": None},
        {"id": 4, "name": "new", "tags": []},
    ]
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.Table.from_pylist(source, schema), tmp_path / "rows" / "0.parquet")
    current = [
        ("upsert", 1, "a", ["x"]),
        ("upsert", 2, "b", None),
        ("upsert", 3, "gone", None),
        ("delete", 4, None, None),
        ("delete", 5, None, None),
    ]
    session = spark_lake.session
    frame = session.createDataFrame(current, "_op string, id long, name string, tags array<string>")
    frame.createOrReplaceTempView("current_state")
    out = tmp_path / "changed", tmp_path / "gone"
    changed_and_gone(
        session, "current_state", tmp_path / "rows", out, key=["id"], columns=["name", "tags"], schema=schema
    )
    assert sorted(row["id"] for row in pq.read_table(out[0]).to_pylist()) == [2, 4]
    assert pq.read_table(out[1]).to_pylist() == [{"id": 3}]
