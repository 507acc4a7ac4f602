"""A real lake and one warm Spark session for the whole test process; each test takes a table of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.bus import EventBus, Message, Stream
from frazil.events import ROWS, encode
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.catalog import Lake, LakeTable, open_lake
from frazil.pipeline import open_session, packages
from frazil.storage import Warehouse
from tests.quick_jvm import QUICK_JVM

_numbers = itertools.count(1)


@dataclass(frozen=True)
class SparkLake:
    lake: Lake
    session: SparkSession
    catalog_url: str


@pytest.fixture(scope="session")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    folder = tmp_path_factory.mktemp("lake")
    warehouse = Warehouse(f"file://{folder}/warehouse")
    url = f"sqlite:///{folder}/catalog.db"
    lake = open_lake(url, warehouse)
    # The jars of every store: this is the one session of the test process, also for tests that add catalogs to it.
    extra = {"spark.jars.packages": packages(s3=True, postgres=True), **QUICK_JVM}
    yield SparkLake(lake, open_session(catalog_url=url, warehouse=warehouse, extra=extra), url)
    lake.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake without Spark, for what PyIceberg does alone."""
    opened = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    yield opened
    opened.close()


def some_table(**declared: Any) -> TableSpec:
    return parse_table({"name": f"t{next(_numbers)}", "columns": {"v": "long"}, **declared})


async def declare(lake: Lake, bus: EventBus, spec: TableSpec | None = None) -> tuple[LakeTable, Stream]:
    spec = spec or some_table()
    stream = await bus.create(f"{spec.short_name}_{next(_numbers)}")
    return lake.create(spec, stream=stream.name, identity=stream.identity), stream


def events(spec: TableSpec, ids: list[str], *, received_at: datetime | None = None, **columns: Any) -> pa.RecordBatch:
    """A batch as the gateway would put it on the bus; columns not given are null."""
    now = received_at or datetime.now(UTC)
    schema = spec.wire_schema()
    known: dict[str, Any] = {
        "_id": ids,
        "_op": ["insert"] * len(ids),
        "_ts": [now] * len(ids),
        "_received_at": [now] * len(ids),
        **columns,
    }
    arrays = [pa.array(known.get(field.name, [None] * len(ids)), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


async def send(stream: Stream, batch: pa.RecordBatch, **headers: str) -> int:
    message = Message(encode([batch]), {ROWS: str(batch.num_rows), **headers})
    return await stream.publish([message], message_id=f"m{next(_numbers)}")


def stored_ids(lake: Lake, name: str) -> list[str]:
    """The ids that a plain PyIceberg scan finds, in the order of the stream."""
    rows = lake.catalog.load_table(name).scan(selected_fields=("_seq", "_id")).to_arrow().sort_by("_seq")
    return list(rows["_id"].to_pylist())
