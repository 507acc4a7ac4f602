"""The fold on real Spark: the state that its events make, exactly once, whatever comes between."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame

from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.events.declaration import Column, ColumnType, TableSpec
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Entity, create_entity
from frazil.lake.commit import audit_fold
from frazil.lake.commit.publish import AuditFailed
from frazil.lake.maintenance import MaintenanceStep
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.commit.target import expire
from frazil.pipeline.entities import FoldCommitter
from frazil.pipeline.maintenance import SparkMaintenance
from tests.entity_model import Model
from tests.kills import Address, address, killed_at
from tests.lake_fixtures import SparkLake, events, send, some_table
from tests.pipeline.joined_spark import Jvm, jvm_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROOT = Path(__file__).parent.parent.parent
COLUMNS = {"k": "long", "a": "string", "tags": "list<string>"}


class Kept:
    """An entity with its stream, its committer and its folder."""

    def __init__(self, spark_lake: SparkLake, entity: Entity, stream: Stream) -> None:
        self.spark_lake = spark_lake
        self.name = entity.base.name
        self.stream = stream
        target = SparkCommitTarget(spark_lake.lake, entity.history.name, spark_lake.session)
        self._committer = Committer(target, stream, window_seconds=86_400, limits=BatchLimits(max_age_seconds=0.0))
        self.folder = FoldCommitter(spark_lake.lake, self.name, spark_lake.session)
        self._sent = 0

    @property
    def spec(self) -> TableSpec:
        return self.spark_lake.lake.table(f"{self.name}__history").spec

    async def commit(self, *made: tuple[str, int, int, dict[str, Any]]) -> None:
        """Events as (op, key, seconds after noon, data), in one message and one commit."""
        ids = [f"e{self._sent + n}" for n in range(len(made))]
        self._sent += len(made)
        columns: dict[str, Any] = {
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


class Interrupted(FoldCommitter):
    """A folder to whom something happens between stage and publish, once."""

    def __init__(self, it: Kept, between: Callable[[], object]) -> None:
        super().__init__(it.spark_lake.lake, it.name, it.spark_lake.session)
        self._between: Callable[[], object] | None = between

    def _stage(self, resolved: DataFrame, entity: Entity, span: Any, batch: str) -> None:
        super()._stage(resolved, entity, span, batch)
        between, self._between = self._between, None
        if between is not None:
            between()


async def test_of_two_folders_one_is_refused_and_each_event_counts_once(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    await it.commit(("upsert", 1, 0, {"a": "x"}), ("patch", 1, 1, {"tags": ["t"]}))
    snapshots: list[int] = []

    def the_other() -> None:
        done = it.folder.fold()
        assert done is not None
        snapshots.append(done.snapshot_id)

    assert Interrupted(it, the_other).fold() is None
    assert it.state() == {1: ("x", ["t"], False)} and it.folder.load().base.snapshot_id == snapshots[0]
    # What the zombie staged is expired in time. Its files go, and those of the state it would have replaced stay.
    await it.commit(("upsert", 1, 2, {"a": "y"}), ("upsert", 2, 2, {"a": "z"}))
    zombie = Interrupted(it, the_other)
    assert zombie.fold() is None
    base = spark_lake.lake.table(it.name)
    lost = [
        s.snapshot_id for s in base.every_snapshot() if s.snapshot_id not in {x.snapshot_id for x in base.snapshots()}
    ]
    assert len(lost) == 2
    expire(spark_lake.session, f"frazil.{it.name}", snapshots=lost)
    assert it.state() == {1: ("y", None, False), 2: ("z", None, False)}


async def test_expiry_keeps_what_a_reader_of_an_earlier_state_needs(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    snapshots = []
    for number in range(4):
        await it.commit(("upsert", 1, number, {"a": f"v{number}"}))
        done = it.folder.fold()
        assert done is not None
        snapshots.append(done.snapshot_id)
    assert it.folder.tidy(keep_snapshots=1) == 0, "all of them were current a moment ago"
    for number, snapshot_id in enumerate(snapshots):
        read = spark_lake.lake.catalog.load_table(it.name).scan(snapshot_id=snapshot_id).to_arrow()
        assert read["a"].to_pylist() == [f"v{number}"]
    hasty = FoldCommitter(spark_lake.lake, it.name, spark_lake.session, keep_seconds=0.0)
    assert hasty.tidy(keep_snapshots=1) == 3
    assert it.state() == {1: ("v3", None, False)} and it.folder.load().unfolded_rows == 0


async def test_a_compaction_in_between_makes_the_fold_stage_again(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    for number in range(3):
        await it.commit(("upsert", number, 0, {"a": "x"}))
        it.folder.fold()
    await it.commit(("patch", 1, 1, {"a": "y"}), ("upsert", 9, 0, {"a": "z"}))
    compacted = Interrupted(it, lambda: compact(it, it.name)).fold()
    assert compacted is not None and (compacted.keys, compacted.new_keys) == (2, 1)
    assert it.state() == {0: ("x", None, False), 1: ("y", None, False), 2: ("x", None, False), 9: ("z", None, False)}


def compact(it: Kept, name: str) -> None:
    maintenance = SparkMaintenance(it.spark_lake.lake, it.spark_lake.session, MaintenanceSettings())
    maintenance.run(MaintenanceStep("compact", name, "a test", min_files=2))


async def test_random_events_folds_compactions_and_restarts_against_a_dictionary(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    dice = random.Random(5)
    model = Model(("k",), ("a", "tags"))
    clock = 0
    for step in range(14):
        made = []
        for _ in range(150):
            clock += dice.choice((0, 0, 1))
            op = dice.choices(("upsert", "patch", "delete"), (4, 4, 1))[0]
            values = {"a": dice.choice(("x", "y", None)), "tags": dice.choice((["p"], [], None))}
            given = {n: v for n, v in values.items() if op == "upsert" or (op == "patch" and dice.random() < 0.6)}
            made.append((op, dice.randint(0, 150), clock - dice.choice((0, 0, 0, 7)), given))
        await it.commit(*made)
        for op, key, at, given in made:
            system = {"_op": op, "_ts": NOON + timedelta(seconds=at), "_patch": list(given)}
            model.take({"k": key, "a": None, "tags": None, **given, **system})
        if dice.random() < 0.7:
            done = it.folder.fold()
            assert done is not None
            expected = {key: (row["a"], row["tags"], row["_op"] == "delete") for (key,), row in model.rows.items()}
            assert it.state() == expected, f"step {step}"
        if dice.random() < 0.3:
            compact(it, dice.choice((it.name, f"{it.name}__history")))
        if dice.random() < 0.3:
            it.folder = FoldCommitter(spark_lake.lake, it.name, spark_lake.session)
    it.folder.fold()
    read = spark_lake.session.table(f"frazil.{it.name}").where("_op <> 'delete'").select("k", "a", "tags").collect()
    there = {(row["k"],): (row["a"], row["tags"]) for row in read}
    assert there == {key: (row["a"], row["tags"]) for key, row in model.there().items()}


async def test_a_long_history_is_folded_in_pieces(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    for number in range(4):
        await it.commit(("upsert", number, 0, {"a": "x"}), ("patch", 0, number, {"a": f"v{number}"}))
    folder = FoldCommitter(spark_lake.lake, it.name, spark_lake.session, max_rows=3)
    folds = []
    while (done := folder.fold()) is not None:
        folds.append(done.rows)
    assert folds == [4, 4]
    assert it.state()[0] == ("v3", None, False) and len(it.state()) == 4


async def test_columns_that_came_with_events_come_with_the_fold(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    await it.commit(("upsert", 1, 0, {"a": "x"}))
    it.folder.fold()
    spark_lake.lake.alter(f"{it.name}__history", lambda spec: spec.with_columns({"n": Column(ColumnType("int"))}))
    await it.commit(("upsert", 2, 0, {"a": "y"}))
    it.folder.fold()
    assert "n" in spark_lake.lake.table(it.name).spec.columns
    rows = spark_lake.lake.catalog.load_table(it.name).scan().to_arrow().sort_by("k")
    assert rows["n"].to_pylist() == [None, None]


async def test_an_audit_notices_a_row_that_was_lost_or_doubled(spark_lake: SparkLake) -> None:
    it = await kept(spark_lake)
    await it.commit(*(("upsert", key, 0, {"a": "x"}) for key in range(10)))
    it.folder.fold()
    base = spark_lake.lake.table(it.name)
    for number, wrong in enumerate(("DELETE FROM {} WHERE k = 3", "UPDATE {} SET _seq = _seq + 1 WHERE k = 4")):
        session = spark_lake.session.newSession()
        session.conf.set("spark.wap.id", f"wrong-{number}")
        session.sql(wrong.format(f"frazil.{it.name}"))
        with pytest.raises(AuditFailed):
            audit_fold(base, spark_lake.lake.table(it.name), f"wrong-{number}", newest=np.array([1 << 40]))


POINTS = [
    "before_fold",
    "after_fold_before_audit",
    "after_fold_before_publish",
    "before_publish",
    "after_publish_before_reload",
    "after_fold",
]


def test_the_points_are_those_in_the_code() -> None:
    source = (ROOT / "frazil/pipeline/entities/fold_committer.py").read_text()
    assert set(re.findall(r"crash_point\(\"(\w+)\"\)", source)) <= set(POINTS)


def fold_in_another_process(there: Address, jvm: Jvm, name: str) -> None:
    FoldCommitter(there.open(), name, jvm.join()).fold()


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at(spark_lake: SparkLake, point: str) -> None:
    """The fold after it takes up what it left: the same state, nothing doubled."""
    it = await kept(spark_lake)
    await it.commit(("upsert", 1, 0, {"a": "x"}), ("upsert", 2, 0, {"a": "x"}))
    it.folder.fold()
    await it.commit(("patch", 1, 1, {"tags": ["t"]}), ("delete", 2, 1, {}), ("upsert", 3, 0, {"a": "z"}))
    lake, session = spark_lake.lake, spark_lake.session
    await asyncio.to_thread(killed_at, point, fold_in_another_process, address(lake), jvm_of(session), it.name)
    published = point in ("after_publish_before_reload", "after_fold")
    assert (it.folder.load().unfolded_rows == 0) is published
    done = it.folder.fold()
    assert (done is None) is published
    assert it.state() == {1: ("x", ["t"], False), 2: (None, None, True), 3: ("z", None, False)}
