"""Maintenance on real Spark: no row is lost or doubled, whatever commits, readers and kills do beside it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.errors import DataLoss, Unavailable
from frazil.events.declaration import TableSpec
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import LakeTable, export_hint
from frazil.lake.commit import audit_rewrite, rewrites
from frazil.lake.maintenance import MaintenanceStep, find_orphans, health_of
from frazil.lake.maintenance.plan import What
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.commit.target import stage
from frazil.pipeline.maintenance import SparkMaintenance
from frazil.storage import local_path
from tests.kills import Address, address, killed_at
from tests.lake_fixtures import SparkLake, declare, events, send, some_table
from tests.pipeline.joined_spark import Jvm, jvm_of
from tests.store_fixtures import duckdb_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAY = 86_400.0
ROOT = Path(__file__).parent.parent.parent


def now() -> datetime:
    return datetime.now(UTC)


def later() -> datetime:
    return now() + timedelta(hours=1)


def worker(spark_lake: SparkLake, **settings: object) -> SparkMaintenance:
    return SparkMaintenance(spark_lake.lake, spark_lake.session, MaintenanceSettings.model_validate(settings))


class Fed:
    """A table, its stream and its committer."""

    def __init__(self, spark_lake: SparkLake, table: LakeTable, stream: Stream) -> None:
        self.spark_lake = spark_lake
        self.name = table.name
        self.spec = table.spec
        self._stream = stream
        self.target = SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session)
        self._committer = Committer(
            self.target, stream, window_seconds=DAY, limits=BatchLimits(max_age_seconds=0.0), executor=None
        )
        self.sent = 0

    @property
    def table(self) -> LakeTable:
        return self.spark_lake.lake.table(self.name)

    async def commit(self, times: int = 1, rows: int = 2) -> None:
        for _ in range(times):
            ids = [f"e{self.sent + n}" for n in range(rows)]
            await send(self._stream, events(self.spec, ids, v=[(self.sent + n) * 7919 % 1000 for n in range(rows)]))
            self.sent += rows
            assert await self._committer.cycle() is not None

    def rows(self) -> list[tuple[object, ...]]:
        return duckdb_rows(self.table, self.spark_lake.lake.warehouse, "_seq, _id, v")


async def fed(spark_lake: SparkLake, commits: int, spec: TableSpec | None = None) -> Fed:
    table, stream = await declare(spark_lake.lake, MemoryBus(), spec)
    found = Fed(spark_lake, table, stream)
    await found.commit(commits)
    return found


async def test_compaction_makes_one_file_of_many(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 5)
    before, watermark = place.rows(), place.table.watermark
    done = worker(spark_lake).run(MaintenanceStep("compact", place.name, "a test")).body()
    assert (done["files_before"], done["files_after"], done["rows"]) == (5, 1, 10)
    assert place.table.files == 1 and place.rows() == before and place.table.watermark == watermark
    health = health_of(place.table, small_below=1 << 20)
    assert health.small_files == 1 and health.compacted_at is not None
    await place.commit(1)
    assert len(place.rows()) == 12
    assert (
        worker(spark_lake).run(MaintenanceStep("compact", place.name, "a test", min_files=20)).body()["files_before"]
        == 0
    )
    assert place.table.files == 2, "few files are left alone"
    assert worker(spark_lake).prove(place.name).files_before == 5, "a new process proves what an earlier one rewrote"


async def test_sorting_orders_all_rows_and_keeps_them(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 4)
    before = place.rows()
    done = (
        worker(spark_lake).run(MaintenanceStep("compact", place.name, "a test", sort=("v", "_id"), min_files=1)).body()
    )
    assert done["files_after"] == 1 and done["sort"] == ["v", "_id"]
    values = place.table.iceberg.scan(selected_fields=("v",)).to_arrow()["v"].to_pylist()
    assert values == sorted(values) and place.rows() == before


async def test_partitions_are_compacted_each_for_itself(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 0, some_table(partition=["bucket(2,v)"]))
    await place.commit(4, rows=8)
    before = place.rows()
    worker(spark_lake).run(MaintenanceStep("compact", place.name, "a test"))
    assert place.table.files == 2 and place.rows() == before


async def test_manifests_are_rewritten_into_few(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 5)
    before = place.rows()
    done = worker(spark_lake).run(MaintenanceStep("rewrite_manifests", place.name, "a test")).body()
    assert (done["manifests_before"], done["manifests_after"]) == (5, 1)
    assert health_of(place.table, small_below=1).manifests == 1
    assert place.rows() == before and place.table.files == 5


async def test_compaction_beside_a_stream_of_commits_loses_nothing(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 4)
    doing = worker(spark_lake)
    stopping = threading.Event()
    outcomes: list[str] = []

    def maintain() -> None:
        while not stopping.is_set():
            for what in ("compact", "rewrite_manifests", "expire"):
                oldest_kept = place.table.snapshots()[:5][-1].committed_at
                try:
                    doing.run(MaintenanceStep(what, place.name, "a test", before=oldest_kept))
                    outcomes.append(what)
                except Unavailable as error:
                    outcomes.append(error.code)

    beside = threading.Thread(target=maintain)
    beside.start()
    deadline = time.monotonic() + 400
    try:
        while (outcomes.count("compact") < 4 or place.sent < 60) and time.monotonic() < deadline:
            await place.commit(1)
    finally:
        stopping.set()
        await asyncio.to_thread(beside.join, 60)
    assert outcomes.count("compact") >= 4 and outcomes.count("expire") >= 1, outcomes
    rows = place.rows()
    assert [row[1] for row in rows] == [f"e{n}" for n in range(place.sent)]
    assert len({row[0] for row in rows}) == place.sent and place.table.rows == place.sent
    assert place.table.marked_watermark() == place.table.watermark


async def test_expiry_keeps_tags_branches_and_the_mark(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 5)
    first, second = (snapshot.snapshot_id for snapshot in place.table.snapshots()[::-1][:2])
    place.table.iceberg.manage_snapshots().create_tag(first, "audit").create_branch(second, "what_if").commit()
    doing = worker(spark_lake)
    doing.run(MaintenanceStep("compact", place.name, "a test"))
    doing.run(MaintenanceStep("expire", place.name, "a test", before=later()))
    kept = {snapshot.snapshot_id for snapshot in place.table.iceberg.metadata.snapshots}
    assert kept == {first, second, place.table.snapshot_id}
    tagged = place.table.iceberg.scan(snapshot_id=first).to_arrow()
    assert tagged["_id"].to_pylist() == ["e0", "e1"], "its files are there, though compaction has replaced them"
    assert len(place.rows()) == 10 and place.table.watermark > 0
    await place.commit(1)
    assert len(place.rows()) == 12


async def test_routine_expiry_keeps_files_that_a_reader_may_need(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 4)
    reading = place.table
    worker(spark_lake).run(MaintenanceStep("compact", place.name, "a test"))
    await place.commit(5)
    assert place.target.tidy(keep_snapshots=2) > 0
    assert sorted(reading.iceberg.scan().to_arrow()["_id"].to_pylist()) == [f"e{n}" for n in range(8)]
    impatient = SparkCommitTarget(spark_lake.lake, place.name, spark_lake.session, keep_seconds=0.0)
    # In a thread that Spark has not seen before, as the pipeline's may be.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(impatient.tidy, keep_snapshots=2).result() > 0
    assert len(place.table.every_snapshot()) == 2 and len(place.rows()) == place.sent


async def test_orphans_go_and_exports_stay(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 3)
    doing = worker(spark_lake)
    export_hint(place.table)
    doing.run(MaintenanceStep("compact", place.name, "a test"))
    folder = local_path(place.table.iceberg.location())
    left = [folder / "data" / "left.parquet", folder / "metadata" / "00001-left.metadata.json"]
    for path in left:
        path.write_bytes(b"left")
    found = {orphan.path for orphan in find_orphans(place.table, before=later())}
    assert found == {str(path) for path in left}, "and nothing that Spark wrote"
    done = doing.run(MaintenanceStep("remove_orphans", place.name, "a test", before=later())).body()
    assert (done["files"], done["metadata_files"], done["bytes"]) == (2, 1, 8)
    exported = spark_lake.session.newSession().read.format("iceberg").load(str(folder))
    assert exported.count() == 6 and len(place.rows()) == 6


async def test_a_lost_stage_is_left_to_expiry_and_then_gone(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 2)
    lost = place.table.rows_at([row[0] for row in place.rows() if isinstance(row[0], int)])
    stage(place.target._session, f"frazil.{place.name}", lost, wap_id="lost", summary={})
    assert len(place.table.iceberg.metadata.snapshots) == 3
    worker(spark_lake).run(MaintenanceStep("expire", place.name, "a test", before=later()))
    assert len(place.table.iceberg.metadata.snapshots) == 1
    assert find_orphans(place.table, before=later()) == [] and len(place.rows()) == 4


async def test_a_step_that_is_given_up_changes_nothing(spark_lake: SparkLake) -> None:
    place = await fed(spark_lake, 6)
    before, snapshot = place.rows(), place.table.snapshot_id
    doing = worker(spark_lake)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            doing.run(MaintenanceStep("compact", place.name, "a test"))
        except Unavailable as error:
            failed.append(error)

    running = threading.Thread(target=run)
    running.start()
    while running.is_alive():
        doing.cancel()
        time.sleep(0.005)
    running.join()
    assert failed and place.table.snapshot_id == snapshot
    assert place.rows() == before
    assert doing.run(MaintenanceStep("compact", place.name, "a test")).body()["files_after"] == 1


async def test_a_rewrite_that_changed_rows_is_found_out(spark_lake: SparkLake) -> None:
    """As a faulty rewrite would: the same number of rows, another position."""
    place = await fed(spark_lake, 3)
    doing = worker(spark_lake)
    doing.run(MaintenanceStep("compact", place.name, "a test"))
    (snapshot,) = rewrites(place.table)
    (file,) = (local_path(task.file.file_path) for task in place.table.iceberg.scan().plan_files())
    rows = pq.read_table(file)
    moved = pa.array([*rows["_seq"].to_pylist()[:-1], 12345], pa.int64())
    pq.write_table(rows.set_column(rows.schema.get_field_index("_seq"), rows.schema.field("_seq"), moved), file)
    with pytest.raises(DataLoss) as caught:
        audit_rewrite(place.table, snapshot)
    assert caught.value.code == "rewrite_audit_failed"


# --- kills ------------------------------------------------------------------------------------------------------------

_POINT = re.compile(r"^\s*crash_point\(\"(\w+)\"\)", re.MULTILINE)
POINTS = [
    name
    for place in ("pipeline/maintenance/spark_steps.py", "lake/maintenance/orphans.py")
    for name in _POINT.findall((ROOT / "frazil" / place).read_text())
]
STEP_AT: dict[str, What] = {
    "compact": "compact",
    "manifests": "rewrite_manifests",
    "expire_planned": "expire",
    "orphans": "remove_orphans",
}


def step_at(point: str) -> What:
    return STEP_AT[point.partition("_")[2]]


def maintain_in_another_process(there: Address, jvm: Jvm, step: MaintenanceStep) -> None:
    SparkMaintenance(there.open(), jvm.join(), MaintenanceSettings()).run(step)


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_a_second_run_finishes_the_job(spark_lake: SparkLake, point: str) -> None:
    place = await fed(spark_lake, 4)
    folder = local_path(place.table.iceberg.location())
    left = [folder / "data" / f"left{n}.parquet" for n in range(3)]
    for path in left:
        path.write_bytes(b"left")
    doing = worker(spark_lake)
    if step_at(point) == "expire":
        doing.run(MaintenanceStep("compact", place.name, "a test"))
    before, watermark, moment = place.rows(), place.table.watermark, later()
    step = MaintenanceStep(step_at(point), place.name, "a test", before=moment)
    others = address(spark_lake.lake), jvm_of(spark_lake.session), step
    await asyncio.to_thread(killed_at, point, maintain_in_another_process, *others)
    assert place.rows() == before and place.table.watermark == watermark, "a kill changes no row"
    worker(spark_lake).run(step)
    assert place.rows() == before and place.table.watermark == watermark
    health = health_of(place.table, small_below=1 << 20)
    if step_at(point) == "compact":
        assert health.files == 1
    elif step_at(point) == "rewrite_manifests":
        assert health.manifests == 1
    elif step_at(point) == "expire":
        assert health.snapshots == 1
    else:
        assert not any(path.exists() for path in left)
    await place.commit(1)
    assert len(place.rows()) == 10


def test_every_kind_of_step_has_its_crash_points() -> None:
    assert {step_at(point) for point in POINTS} == set(STEP_AT.values())
