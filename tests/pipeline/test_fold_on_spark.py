"""The fold on real Spark: the state that its events make, exactly once, whatever comes between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.events.table import TableSpec
from frazil.lake import Entity, create_entity
from frazil.pipeline.committer import Committer, Limits
from frazil.pipeline.folder import Folder
from frazil.pipeline.target import SparkTarget
from tests.lake_fixtures import SparkLake, events, send, some_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = {"k": "long", "a": "string", "tags": "list<string>"}


class Kept:
    """An entity with its stream, its committer and its folder."""

    def __init__(self, spark_lake: SparkLake, entity: Entity, stream: Stream) -> None:
        self.spark_lake = spark_lake
        self.name = entity.base.name
        self.stream = stream
        target = SparkTarget(spark_lake.lake, entity.history.name, spark_lake.session)
        self._committer = Committer(target, stream, window_seconds=86_400, limits=Limits(max_age_seconds=0.0))
        self.folder = Folder(spark_lake.lake, self.name, spark_lake.session)
        self._sent = 0

    @property
    def spec(self) -> TableSpec:
        return self.spark_lake.lake.table(f"{self.name}__history").spec

    async def commit(self, *made: tuple[str, int, int, dict[str, Any]]) -> None:
        """Events as (op, key, seconds after noon, data), in one message and one commit."""
        ids = [f"e{self._sent + n}" for n in range(len(made))]
        self._sent += len(made)
        columns: dict[str, list[Any]] = {
            "_op": [op for op, *_ in made],
            "_ts": [NOON + timedelta(seconds=at) for _, _, at, _ in made],
            "k": [key for _, key, *_ in made],
            "_patch": [list(data) if op == "patch" else None for op, _, _, data in made],
        }
        for name in ("a", "tags"):
            columns[name] = [data.get(name) for *_, data in made]
        await send(self.stream, events(self.spec, ids, **columns))
        assert await self._committer.cycle() is not None

    def state(self) -> dict[int, tuple[Any, ...]]:
        """The base as PyIceberg reads it."""
        rows = self.spark_lake.lake.catalog.load_table(self.name).scan().to_arrow().to_pylist()
        assert len({row["k"] for row in rows}) == len(rows), "a key stands twice"
        return {row["k"]: (row["a"], row["tags"], row["_op"] == "delete") for row in rows}


async def kept(spark_lake: SparkLake, **declared: Any) -> Kept:
    spec = some_table(kind="entity", key=["k"], columns=COLUMNS, **declared)
    stream = await MemoryBus().create(f"s_{spec.short_name}")
    return Kept(spark_lake, create_entity(spark_lake.lake, spec, stream=stream.name, identity=stream.identity), stream)


async def test_a_fold_makes_the_state_of_its_events(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    assert it.folder.fold() is None
    await it.commit(
        ("upsert", 1, 0, {"a": "x", "tags": ["p"]}),
        ("patch", 1, 1, {"a": "y"}),
        ("upsert", 2, 5, {"a": "z"}),
        ("delete", 2, 5, {}),
        ("upsert", 2, 4, {"a": "too late"}),
        ("patch", 3, 0, {"tags": ["q", None]}),
    )
    done = it.folder.fold()
    assert done is not None and (done.rows, done.keys, done.new_keys, done.late_keys) == (6, 3, 3, 0)
    assert it.state() == {1: ("y", ["p"], False), 2: (None, None, True), 3: (None, ["q", None], False)}
    base = it.folder.load().base
    assert base.watermark == it.folder.load().history.watermark == done.watermark
    assert it.folder.fold() is None

    await it.commit(
        ("upsert", 2, 4, {"a": "still too late"}),
        ("patch", 1, 0, {"a": "late"}),
        ("patch", 1, 1, {"tags": None}),
        ("upsert", 4, 0, {"a": "new"}),
    )
    done = it.folder.fold()
    assert done is not None and (done.keys, done.new_keys, done.late_keys) == (2, 1, 1)
    expected = {1: ("y", None, False), 2: (None, None, True), 3: (None, ["q", None], False), 4: ("new", None, False)}
    assert it.state() == expected
    assert it.folder.load().unfolded_rows == 0


async def test_a_fold_of_late_events_alone_moves_the_watermark(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    await it.commit(("upsert", 1, 5, {"a": "x"}))
    it.folder.fold()
    await it.commit(("upsert", 1, 4, {"a": "late"}))
    done = it.folder.fold()
    assert done is not None and (done.keys, done.late_keys) == (0, 1)
    assert it.folder.load().unfolded_rows == 0 and it.state() == {1: ("x", None, False)}
