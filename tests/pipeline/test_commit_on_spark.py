"""The commit protocol on real Spark and a real catalog, against everything that can come between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap, BusReplaced, FrazilError, WatermarkTorn
from frazil.events import first_position
from frazil.events.declaration import parse_table
from frazil.lake.catalog import Lake, LakeTable, changed_by
from frazil.lake.commit import Outcome, audit, publish_stage
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.commit.target import Commit, TableState, expire, stage
from tests.lake_fixtures import SparkLake, declare, events, send, some_table, stored_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAY = 86_400.0


def committer(
    spark_lake: SparkLake, table: LakeTable, stream: object, target: SparkCommitTarget | None = None
) -> Committer:
    target = target or SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session)
    return Committer(target, stream, window_seconds=DAY, limits=BatchLimits(max_age_seconds=0.0))  # type: ignore[arg-type]


async def test_each_event_is_one_row_and_the_watermark_moves_with_it(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    await send(stream, events(table.spec, ["a", "b"], v=[1, 2**53 + 1]))
    await send(stream, events(table.spec, ["c", "a"], v=[3, 1]))
    done = await committer(spark_lake, table, stream).cycle()
    assert done is not None and (done.rows, done.duplicates, done.messages) == (3, 1, 2)
    assert done.times.stage_seconds > 0 and done.times.publish_seconds > 0
    assert done.times.stage_seconds + done.times.publish_seconds < done.seconds
    after = spark_lake.lake.table(table.name)
    assert after.watermark == first_position(3) and after.marked_watermark() == first_position(3)
    assert after.rows == 3 and stored_ids(spark_lake.lake, table.name) == ["a", "b", "c"]
    rows = after.rows_at([first_position(1) + 1])
    assert rows["v"].to_pylist() == [2**53 + 1]
    assert await stream.first() == 3


async def test_a_commit_after_a_commit_loads_its_table_twice(
    spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After reading and after staging; the rest is what the last cycle and the swap have answered."""
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    await send(stream, events(table.spec, ["a"], v=[1]))
    await run.cycle()
    loads: list[str] = []
    load = Lake.table

    def counted(lake: Lake, name: str, **options: Any) -> LakeTable:
        loads.append(name)
        return load(lake, name, **options)

    monkeypatch.setattr(Lake, "table", counted)
    await send(stream, events(table.spec, ["b"], v=[2]))
    assert await run.cycle() is not None
    assert loads == [table.name] * 2
    monkeypatch.undo()
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b"]


async def test_only_duplicates_still_move_the_watermark(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    await send(stream, events(table.spec, ["a"], v=[1]))
    await run.cycle()
    await send(stream, events(table.spec, ["a"], v=[1]))
    done = await run.cycle()
    assert done is not None and (done.rows, done.duplicates) == (0, 1)
    assert spark_lake.lake.table(table.name).watermark == first_position(3)
    assert await run.cycle(idle_seconds=0.0) is None


async def test_a_new_committer_knows_the_committed_ids(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    await send(stream, events(table.spec, ["a", "b"], v=[1, 2]))
    await committer(spark_lake, table, stream).cycle()
    await send(stream, events(table.spec, ["b", "c"], v=[2, 3]))
    await committer(spark_lake, table, stream).cycle()
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b", "c"]


async def test_an_id_counts_again_after_the_window(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    long_ago = datetime.now(UTC) - timedelta(days=2)
    await send(stream, events(table.spec, ["a"], received_at=long_ago, v=[1]))
    await committer(spark_lake, table, stream).cycle()
    await send(stream, events(table.spec, ["a"], v=[2]))
    await committer(spark_lake, table, stream).cycle()
    assert stored_ids(spark_lake.lake, table.name) == ["a", "a"]


class Interrupted(SparkCommitTarget):
    """A target where something happens between stage and publish."""

    def __init__(self, spark_lake: SparkLake, name: str, between: object) -> None:
        super().__init__(spark_lake.lake, name, spark_lake.session)
        self._between = between
        self.commits = 0

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        self.commits += 1
        if self.commits > 1:
            return super().commit(base, commit)
        assert isinstance(base, LakeTable)
        stage(self._session, f"frazil.{self._name}", commit.rows, wap_id=commit.batch, summary=commit.summary())
        snapshot = audit(base, self._lake.table(self._name), commit.batch, rows=commit.rows.num_rows)
        self._between()  # type: ignore[operator]
        published = publish_stage(self._lake, base, snapshot, commit.watermark)
        return published.outcome, published.table


async def test_two_committers_on_one_table_write_each_row_once(spark_lake: SparkLake) -> None:
    """The second commits the same range while the first sits between stage and publish, as after a long pause."""
    table, stream = await declare(spark_lake.lake, MemoryBus())
    await send(stream, events(table.spec, ["a", "b"], v=[1, 2]))

    def the_other() -> None:
        base = spark_lake.lake.table(table.name)
        rows = pa.Table.from_batches([events(table.spec, ["a", "b"], v=[1, 2])])
        seq = pa.array([first_position(1), first_position(1) + 1], pa.int64())
        commit = Commit("other", base.watermark, first_position(2), rows.add_column(0, "_seq", seq))
        outcome, _ = SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session).commit(base, commit)
        assert outcome is Outcome.PUBLISHED

    zombie = Interrupted(spark_lake, table.name, the_other)
    done = await committer(spark_lake, table, stream, zombie).cycle()
    assert done is not None and done.watermark == first_position(2)
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b"]


async def test_a_zombie_with_a_range_that_is_no_longer_next_is_refused(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    await send(stream, events(table.spec, ["a"], v=[1]))
    await send(stream, events(table.spec, ["b"], v=[2]))

    def the_other_takes_one_message_only() -> None:
        base = spark_lake.lake.table(table.name)
        rows = pa.Table.from_batches([events(table.spec, ["a"], v=[1])])
        rows = rows.add_column(0, "_seq", pa.array([first_position(1)], pa.int64()))
        SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session).commit(
            base, Commit("other", base.watermark, first_position(2), rows)
        )

    zombie = committer(spark_lake, table, stream, Interrupted(spark_lake, table.name, the_other_takes_one_message_only))
    with pytest.raises(FrazilError) as refused:
        await zombie.cycle()
    assert refused.value.code == "superseded"
    await zombie.cycle()
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b"]


async def test_compaction_between_stage_and_publish(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    for name in "abc":
        await send(stream, events(table.spec, [name], v=[1]))
        await run.cycle()
    await send(stream, events(table.spec, ["d"], v=[4]))

    def compact() -> None:
        moved = spark_lake.session.sql(
            f"CALL frazil.system.rewrite_data_files(table => '{table.name}', "
            "options => map('rewrite-all', 'true', 'min-input-files', '1'))"
        ).collect()
        assert moved[0]["rewritten_data_files_count"] == 3

    target = Interrupted(spark_lake, table.name, compact)
    await committer(spark_lake, table, stream, target).cycle()
    assert target.commits == 2, "the rows were staged again on top of the compaction"
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b", "c", "d"]


async def test_expiry_of_everything_between_stage_and_publish(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    await send(stream, events(table.spec, ["a"], v=[1]))
    await run.cycle()
    await send(stream, events(table.spec, ["b"], v=[2]))

    def expire_all() -> None:
        expire(spark_lake.session, f"frazil.{table.name}", older_than=datetime.now(UTC) + timedelta(hours=1))

    target = Interrupted(spark_lake, table.name, expire_all)
    await committer(spark_lake, table, stream, target).cycle()
    assert target.commits == 2, "the staged snapshot was gone and the rows were staged again"
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b"]


async def test_a_restart_after_all_marked_snapshots_expired(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    for name in "ab":
        await send(stream, events(table.spec, [name], v=[1]))
        await run.cycle()
    spark_lake.session.sql(
        f"CALL frazil.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))"
    )
    expire(spark_lake.session, f"frazil.{table.name}", older_than=datetime.now(UTC) + timedelta(hours=1))
    current = spark_lake.lake.table(table.name)
    assert current.marked_watermark() is None and current.watermark == first_position(3)
    await send(stream, events(table.spec, ["b", "c"], v=[1, 1]))
    await committer(spark_lake, table, stream).cycle()
    assert stored_ids(spark_lake.lake, table.name) == ["a", "b", "c"]


@pytest.mark.parametrize("expired", [False, True])
async def test_a_rollback_by_hand_is_refused_with_the_repair_command(spark_lake: SparkLake, expired: bool) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    run = committer(spark_lake, table, stream)
    for name in "ab":
        await send(stream, events(table.spec, [name], v=[1]))
        await run.cycle()
    first = spark_lake.lake.table(table.name).snapshots()[-1].snapshot_id
    spark_lake.session.sql(f"CALL frazil.system.rollback_to_snapshot('{table.name}', {first})")
    if expired:
        expire(spark_lake.session, f"frazil.{table.name}", older_than=datetime.now(UTC) + timedelta(hours=1))
    await send(stream, events(table.spec, ["c"], v=[1]))
    with pytest.raises(WatermarkTorn) as refused:
        await committer(spark_lake, table, stream).cycle()
    assert f"frazil repair watermark {table.spec.short_name}" in refused.value.hint
    assert stored_ids(spark_lake.lake, table.name) == ["a"]


async def test_a_purged_bus_is_refused(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    for name in "abc":
        await send(stream, events(table.spec, [name], v=[1]))
    await stream.trim(3)
    with pytest.raises(BusGap) as refused:
        await committer(spark_lake, table, stream).cycle()
    assert f"frazil repair bus {table.spec.short_name}" in refused.value.hint
    assert spark_lake.lake.table(table.name).rows == 0


async def test_another_stream_is_refused(spark_lake: SparkLake) -> None:
    bus = MemoryBus()
    table, stream = await declare(spark_lake.lake, bus)
    await bus.delete(stream.name)
    replaced = await bus.create(stream.name)
    await send(replaced, events(table.spec, ["a"], v=[1]))
    with pytest.raises(BusReplaced):
        await committer(spark_lake, table, replaced).cycle()


async def test_events_of_an_older_and_a_newer_schema_meet_in_one_batch(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus(), some_table(columns={"n": "int"}))
    await send(stream, events(table.spec, ["old"], n=[1]))
    change = changed_by({"add_columns": {"note": "string"}, "widen": {"n": "long"}})
    newer = spark_lake.lake.alter(table.name, change)
    await send(stream, events(newer.spec, ["new"], n=[2**40], note=["x"]))
    await committer(spark_lake, table, stream).cycle()
    rows = spark_lake.lake.catalog.load_table(table.name).scan().to_arrow().sort_by("_seq")
    assert rows["n"].to_pylist() == [1, 2**40] and rows["note"].to_pylist() == [None, "x"]


async def test_every_type_and_partition_arrives_unchanged(spark_lake: SparkLake) -> None:
    spec = parse_table(
        {
            "name": "all_types",
            "columns": {
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
                "item": "struct<sku:string,price:decimal(9,2)>",
                "counts": "map<string,long>",
            },
            "partition": ["day(_ts)", "bucket(4,s)", "day", "month(at)"],
            "unknown_fields": "keep",
        }
    )
    table, stream = await declare(spark_lake.lake, MemoryBus(), spec)
    at = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    values: dict[str, Any] = {
        "s": ["ü\x00", None],
        "b": [True, None],
        "i": [-(2**31), None],
        "l": [2**63 - 1, None],
        "f": [0.5, None],
        "d": [0.1, None],
        "m": [Decimal("1234567890123456789012345678.0123456789"), None],
        "day": [at.date(), None],
        "at": [at, None],
        "raw": [b"\x00\xff", None],
        "j": ['{"a":1e400}', None],
        "tags": [["a", None], None],
        "item": [{"sku": "x", "price": Decimal("1.10")}, None],
        "counts": [[("k", 1)], None],
        "_extra": ['{"z":1}', None],
    }
    await send(stream, events(spec, ["full", "null"], **values))
    await committer(spark_lake, table, stream).cycle()
    stored = spark_lake.lake.catalog.load_table(table.name).scan().to_arrow().sort_by("_seq")
    for name, expected in values.items():
        assert stored[name].to_pylist() == expected, name


async def test_the_same_range_with_other_borders_gives_the_same_rows(spark_lake: SparkLake) -> None:
    ids = [f"e{(i * 7) % 20}" for i in range(40)]
    stored = []
    for sizes in ((40,), (1, 2, 3, 34), (13, 13, 14)):
        table, stream = await declare(spark_lake.lake, MemoryBus())
        for start in range(0, 40, 4):
            await send(stream, events(table.spec, ids[start : start + 4], v=list(range(start, start + 4))))
        target = SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session)
        for size in sizes:
            small = Committer(
                target, stream, window_seconds=DAY, limits=BatchLimits(max_rows=size, max_age_seconds=0.0)
            )
            await small.cycle()
        while await committer(spark_lake, table, stream).cycle(idle_seconds=0.0):
            continue
        rows = spark_lake.lake.catalog.load_table(table.name).scan().to_arrow().sort_by("_seq")
        stored.append((rows["_seq"].to_pylist(), rows["_id"].to_pylist(), rows["v"].to_pylist()))
    assert stored[0] == stored[1] == stored[2] and len(stored[0][0]) == 20


async def test_the_snapshot_budget_is_kept(spark_lake: SparkLake) -> None:
    table, stream = await declare(spark_lake.lake, MemoryBus())
    target = SparkCommitTarget(spark_lake.lake, table.name, spark_lake.session)
    run = committer(spark_lake, table, stream, target)
    for number in range(6):
        await send(stream, events(table.spec, [f"e{number}"], v=[number]))
        await run.cycle()
    assert target.tidy(keep_snapshots=4) > 0
    after = spark_lake.lake.table(table.name)
    assert len(after.snapshots()) == 4 and after.rows == 6
    assert stored_ids(spark_lake.lake, table.name) == [f"e{number}" for number in range(6)]
