"""One suite for every place that a warehouse may be: what is committed there is found by libraries that wrote nothing.

On the local disk the catalog is SQLite, on S3 it is Postgres, and the address of both has characters that need care.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict, NotFound
from frazil.events import first_position
from frazil.lake.catalog import LakeTable, changed_by
from frazil.storage import local_path
from tests.contract.seaweed import SeaweedServer
from tests.contract.servers import PostgresServer
from tests.lake_fixtures import SparkLake, declare, events, send, some_table, stored_ids
from tests.store_fixtures import Store, duckdb_rows, open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PREFIX = "a b+c/ü=1"


@pytest.fixture(scope="module", params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def store(
    request: pytest.FixtureRequest, spark_lake: SparkLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    session = spark_lake.session
    if request.param == "file":
        folder = tmp_path_factory.mktemp("file_store")
        warehouse = replace(spark_lake.lake.warehouse, url=f"file://{folder}/{PREFIX}")
        opened = open_store(session, "contract_file", f"sqlite:///{folder}/catalog.db", warehouse)
    else:
        seaweed: SeaweedServer = request.getfixturevalue("seaweed")
        postgres: PostgresServer = request.getfixturevalue("catalog_postgres")
        opened = open_store(session, "contract_s3", postgres.url, seaweed.warehouse(PREFIX), **postgres.credentials)
    yield opened
    opened.lake.close()


def files(store: Store, table: LakeTable, request: pytest.FixtureRequest) -> set[str]:
    """Every file below the table's folder, asked for past both engines."""
    location = table.iceberg.location()
    system: FileSystem = LocalFileSystem()
    folder = str(local_path(location))
    if store.lake.warehouse.is_s3:
        system = request.getfixturevalue("seaweed").files()
        folder = location.removeprefix("s3://")
    found = system.get_file_info(FileSelector(folder, recursive=True))
    return {info.path.removeprefix(folder) for info in found if info.is_file and not info.path.endswith("/")}


async def test_what_spark_commits_others_read(store: Store) -> None:
    columns = {"v": "long", "m": "decimal(38,2)", "at": "timestamp", "tags": "list<string>"}
    spec = some_table(columns=columns, partition=["day(_ts)", "bucket(4,v)"])
    table, stream = await declare(store.lake, MemoryBus(), spec)
    at = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    rows: dict[str, Any] = {
        "v": [2**53 + 1, None],
        "m": [Decimal("-1.10"), None],
        "at": [at, None],
        "tags": [["ü"], None],
    }
    await send(stream, events(spec, ["a", "b"], **rows))
    await send(stream, events(spec, ["b", "c"], v=[1, 2]))
    done = await store.committer(table, stream).cycle()
    assert done is not None and (done.rows, done.duplicates) == (3, 1)
    after = store.lake.table(table.name)
    assert after.watermark == first_position(3) and after.rows == 3
    assert stored_ids(store.lake, table.name) == ["a", "b", "c"]
    found = duckdb_rows(after, store.lake.warehouse, "_seq, _id, v, m, tags")
    assert found == [
        (first_position(1), "a", 2**53 + 1, Decimal("-1.10"), ["ü"]),
        (first_position(1) + 1, "b", None, None, None),
        (first_position(2) + 1, "c", 2, None, None),
    ]
    assert after.rows_at([first_position(1)])["at"].to_pylist() == [at]


async def test_partitions_of_any_text(store: Store) -> None:
    table, stream = await declare(store.lake, MemoryBus(), some_table(columns={"s": "string"}, partition=["s"]))
    values = ["a/b", "ü %41", "x=y?#&+", " ", "", None, "../up"]
    await send(stream, events(table.spec, [f"e{i}" for i in range(len(values))], s=values))
    assert await store.committer(table, stream).cycle() is not None
    after = store.lake.table(table.name)
    assert after.files == len(values)
    found = duckdb_rows(after, store.lake.warehouse, "s, _seq")
    assert [row[0] for row in found] == values
    assert after.rows_at([first_position(1) + i for i in range(len(values))])["s"].to_pylist() == values


async def test_columns_that_were_added_and_widened(store: Store) -> None:
    table, stream = await declare(store.lake, MemoryBus(), some_table(columns={"n": "int"}))
    run = store.committer(table, stream)
    await send(stream, events(table.spec, ["a"], n=[1]))
    await run.cycle()
    change = changed_by({"widen": {"n": "long"}, "add_columns": {"note": "string"}})
    altered = store.lake.alter(table.name, change)
    await send(stream, events(altered.spec, ["b"], n=[2**40], note=["x"]))
    await run.cycle()
    found = duckdb_rows(store.lake.table(table.name), store.lake.warehouse, "_id, n, note, _seq")
    assert [row[:3] for row in found] == [("a", 1, None), ("b", 2**40, "x")]


async def test_a_dropped_table_comes_back_beside_a_new_one(store: Store) -> None:
    table, stream = await declare(store.lake, MemoryBus())
    await send(stream, events(table.spec, ["a"], v=[1]))
    await store.committer(table, stream).cycle()
    store.lake.drop(table.name)
    with pytest.raises(NotFound):
        store.lake.table(table.name)
    new, new_stream = await declare(store.lake, MemoryBus(), table.spec)
    await send(new_stream, events(table.spec, ["other"], v=[1]))
    await store.committer(new, new_stream).cycle()
    with pytest.raises(Conflict):
        store.lake.undrop(table.name)
    store.lake.drop(table.name)
    assert len(store.lake.dropped()[table.name]) == 2
    assert [row[1] for row in duckdb_rows(store.lake.undrop(table.name), store.lake.warehouse)] == ["other"]


async def test_expiry_deletes_the_files_that_only_old_snapshots_needed(
    store: Store, request: pytest.FixtureRequest
) -> None:
    table, stream = await declare(store.lake, MemoryBus())
    store.lake.set_properties(table.name, {"write.metadata.previous-versions-max": "3"})
    target = store.target(table)
    run = store.committer(table, stream, target)
    for number in range(7):
        await send(stream, events(table.spec, [f"e{number}"], v=[number]))
        await run.cycle()
    lists = {name for name in files(store, table, request) if "/snap-" in name}
    assert len(lists) == 7
    assert await asyncio.to_thread(target.tidy, keep_snapshots=4) == 3
    left = files(store, table, request)
    assert {name for name in left if "/snap-" in name} < lists, "the lists of expired snapshots are gone"
    assert len([name for name in left if "/snap-" in name]) == 4
    assert len([name for name in left if name.endswith(".parquet")]) == 7, "rows that are still in the table stay"
    # The newest, those in its log, and what the last commit of each of the two writers has not deleted yet.
    assert len([name for name in left if name.endswith(".metadata.json")]) <= 6
    after = store.lake.table(table.name)
    assert [row[1] for row in duckdb_rows(after, store.lake.warehouse)] == [f"e{number}" for number in range(7)]
    assert after.last_commit_at is not None and after.last_commit_at > datetime.now(UTC) - timedelta(minutes=10)
