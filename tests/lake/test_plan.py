from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.manifest import DataFile

from frazil.errors import InvalidInput
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.maintenance import (
    Health,
    health_of,
    health_verdict,
    plan_maintenance,
    requested_steps,
    snapshots_over_budget,
)
from tests.lake.staging import append
from tests.lake_fixtures import some_table

NOW = datetime.now(UTC)
SETTINGS = MaintenanceSettings(min_small_files=4, keep_seconds=0)


def table_of(lake: Lake, commits: int, **declared: object) -> LakeTable:
    spec = some_table(**declared)
    lake.create(spec, stream=spec.short_name, identity="i")
    for number in range(commits):
        append(lake, spec.name, [{"v": number}, {"v": number + 100}])
    return lake.table(spec.name)


def judged(table: LakeTable, small_below: int = 1 << 20) -> Health:
    return health_of(table, small_below=small_below)


def test_health_counts_what_the_table_consists_of(lake: Lake) -> None:
    table = table_of(lake, 5)
    health = judged(table)
    assert (health.rows, health.files, health.small_files, health.snapshots, health.manifests) == (10, 5, 5, 5, 5)
    assert health.small_by_partition == (5,)
    assert health.delete_files == 0 and health.compacted_at is None
    assert health.bytes == sum(file.file_size_in_bytes for file in files(table))
    assert health.average_bytes == health.bytes // 5
    assert health.metadata_files == len(table.iceberg.metadata.metadata_log) + 1
    assert health.oldest_snapshot_at == table.snapshots()[-1].committed_at
    assert judged(table, small_below=1).small_files == 0


def files(table: LakeTable) -> list[DataFile]:
    return [task.file for task in table.iceberg.scan().plan_files()]


def test_only_so_many_manifests_are_read(lake: Lake) -> None:
    table = table_of(lake, 5)
    health = health_of(table, small_below=1 << 20, max_manifests=2)
    assert (health.manifests, health.manifests_read, health.small_files, health.files) == (5, 2, 2, 5)


def test_small_files_of_different_partitions_are_no_work(lake: Lake) -> None:
    spec = some_table(partition=["v"])
    lake.create(spec, stream=spec.short_name, identity="i")
    for number in range(6):
        append(lake, spec.name, [{"v": number}])
    health = judged(lake.table(spec.name))
    assert health.small_files == 6 and health.small_by_partition == (1,) * 6
    assert plan_maintenance(health, SETTINGS, snapshot_budget=100, now=NOW) == []
    for _ in range(3):
        append(lake, spec.name, [{"v": 3}])
    (step,) = plan_maintenance(judged(lake.table(spec.name)), SETTINGS, snapshot_budget=100, now=NOW)
    assert step.what == "compact" and step.why.startswith("4 files")


def test_an_empty_table_is_in_good_health(lake: Lake) -> None:
    health = judged(table_of(lake, 0))
    assert (health.files, health.average_bytes, health.snapshots, health.oldest_snapshot_at) == (0, 0, 0, None)
    assert health_verdict(plan_maintenance(health, SETTINGS, snapshot_budget=1, now=NOW)) == "good"


def test_the_verdict_says_what_to_run(lake: Lake) -> None:
    table = table_of(lake, 5)
    short = table.spec.short_name
    said = health_verdict(plan_maintenance(judged(table), SETTINGS, snapshot_budget=100, now=NOW))
    assert said == f"5 files are smaller than 33.6 MB: frazil compact {short}"
    later = NOW + timedelta(hours=1)
    everything = plan_maintenance(
        judged(table),
        SETTINGS.model_copy(update={"max_manifests": 2}),
        snapshot_budget=3,
        now=later,
        orphans_sought_at=NOW - timedelta(days=2),
    )
    assert [step.what for step in everything] == ["compact", "rewrite_manifests", "expire", "remove_orphans"]
    assert f"frazil expire {short}" in health_verdict(everything)
    assert everything[2].why.startswith("2 of 5 snapshots")
    assert everything[3].before == later - timedelta(seconds=SETTINGS.orphan_age_seconds)


def test_orphans_are_sought_by_the_clock(lake: Lake) -> None:
    health = judged(table_of(lake, 1))
    for ago, steps in ((timedelta(hours=23), []), (timedelta(hours=25), ["remove_orphans"])):
        found = plan_maintenance(health, SETTINGS, snapshot_budget=9, now=NOW, orphans_sought_at=NOW - ago)
        assert [step.what for step in found] == steps


def test_a_compaction_that_is_asked_for_takes_what_there_is(lake: Lake) -> None:
    table = table_of(lake, 2)
    health = judged(table)

    def asked(what: str, *sort: str) -> list[str]:
        steps = requested_steps(what, table.spec, health, SETTINGS, snapshot_budget=1, now=NOW, sort=sort)
        return [f"{step.what} {','.join(step.sort)}".strip() for step in steps]

    assert plan_maintenance(health, SETTINGS, snapshot_budget=9, now=NOW) == []
    assert asked("compact") == ["compact"]
    assert asked("compact", "v", "_ts") == ["compact v,_ts"]
    assert asked("rewrite_manifests") == ["rewrite_manifests"]
    assert asked("remove_orphans") == ["remove_orphans"]
    for wrong in (("compact", "nothing"), ("compact", "v'); DROP"), ("expire", "v"), ("explode",)):
        with pytest.raises(InvalidInput):
            asked(*wrong)


def test_what_was_compacted_is_told_by_the_newest_of_snapshot_and_memory(lake: Lake) -> None:
    table = table_of(lake, 1)
    assert health_of(table, small_below=1, compacted_at=NOW).compacted_at == NOW


def test_retention_runs_by_itself_only_where_that_is_set(lake: Lake) -> None:
    spec = some_table(columns={"v": "long", "d": "date"}, partition=["d"], retention_years=2)
    lake.create(spec, stream=spec.short_name, identity="i")
    health = judged(lake.table(spec.name))
    never = datetime.fromtimestamp(0, UTC)

    def planned(settings: MaintenanceSettings, applied_at: datetime | None, of: Health = health) -> list[str]:
        steps = plan_maintenance(of, settings, snapshot_budget=100, now=NOW, retention_applied_at=applied_at)
        return [step.what for step in steps]

    allowed = SETTINGS.model_copy(update={"apply_retention": True})
    assert planned(SETTINGS, never) == [], "nobody allowed it"
    assert planned(allowed, never) == ["retention"]
    assert planned(allowed, NOW - timedelta(hours=23)) == [], "once a day"
    assert planned(allowed, never, judged(table_of(lake, 0, retention_years=2))) == [], "its partitions tell no time"
    assert planned(allowed, never, judged(table_of(lake, 0))) == []


def test_a_table_that_keeps_all_snapshots_expires_none(lake: Lake) -> None:
    table = table_of(lake, 6, keep_snapshots="all")
    health, later = judged(table), NOW + timedelta(days=1)
    aged = SETTINGS.model_copy(update={"snapshot_age_seconds": 1.0})
    assert plan_maintenance(health, aged, snapshot_budget=1, now=later) == []
    assert requested_steps("expire", table.spec, health, aged, snapshot_budget=1, now=later) == []
    assert snapshots_over_budget(table, budget=1, keep_seconds=0, now=later) == []
