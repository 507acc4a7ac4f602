from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.lake.catalog import Lake, SnapshotInfo
from frazil.lake.maintenance import snapshots_over_budget
from frazil.lake.maintenance.snapshot_expiry import expiry_cutoff, needed_by_readers
from tests.lake.staging import append, rows, stage, start_of_next
from tests.lake_fixtures import some_table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lineage(*ages: float, replaced: tuple[int, ...] = ()) -> list[SnapshotInfo]:
    """Snapshots of these ages in seconds, newest first; those at the positions `replaced` are compactions."""
    return [
        SnapshotInfo(
            snapshot_id=len(ages) - at,
            parent_id=len(ages) - at - 1 or None,
            committed_at=NOW - timedelta(seconds=age),
            operation="replace" if at in replaced else "append",
            added_rows=1,
            total_rows=len(ages) - at,
            watermark=None if at in replaced else len(ages) - at,
            batch=None,
        )
        for at, age in enumerate(ages)
    ]


def left(found: list[SnapshotInfo], before: datetime | None) -> list[int]:
    return [snapshot.snapshot_id for snapshot in found if before is None or snapshot.committed_at >= before]


@pytest.mark.parametrize(
    ("ages", "budget", "keep", "age", "kept"),
    [
        ((), 1, 0, None, []),
        ((1, 2, 3), 3, 0, None, [3, 2, 1]),
        ((1, 2, 3), 2, 0, None, [3, 2]),
        ((1, 2, 3), 1, 0, 1.5, [3]),
        # Within the budget, but beyond its age; the one that was current when the age began goes too.
        ((10, 20, 30), 9, 0, 15, [3]),
        # 30 s ago the snapshot of 40 s was current: a reader may have begun on it.
        ((10, 20, 40, 50), 1, 30, None, [4, 3, 2]),
        ((10, 20, 40, 50), 1, 60, None, [4, 3, 2, 1]),
        # The current one stays, whatever its age.
        ((5000,), 1, 0, 1, [1]),
    ],
)
def test_what_is_kept(ages: tuple[float, ...], budget: int, keep: float, age: float | None, kept: list[int]) -> None:
    found = lineage(*ages)
    assert left(found, expiry_cutoff(found, budget=budget, keep_seconds=keep, age_seconds=age, now=NOW)) == kept


def test_the_newest_marked_one_stays_below_compactions() -> None:
    found = lineage(10, 20, 30, 40, replaced=(0, 1))
    assert left(found, expiry_cutoff(found, budget=1, keep_seconds=0, now=NOW)) == [4, 3, 2]


AGES = st.lists(st.integers(0, 5000), max_size=30).map(sorted)


@given(AGES, st.integers(1, 40), st.integers(0, 6000), st.none() | st.integers(1, 6000), st.sets(st.integers(0, 29)))
def test_nothing_goes_that_somebody_needs(
    ages: list[int], budget: int, keep: int, age: int | None, replaced: set[int]
) -> None:
    found = lineage(*ages, replaced=tuple(replaced))
    kept = left(found, expiry_cutoff(found, budget=budget, keep_seconds=keep, age_seconds=age, now=NOW))
    assert kept == [s.snapshot_id for s in found][: len(kept)], "what stays is the newest end"
    if found:
        assert found[0].snapshot_id in kept
    assert {s.snapshot_id for s in found if s.watermark is not None and s.snapshot_id not in kept} == set() or any(
        s.watermark is not None for s in found if s.snapshot_id in kept
    )
    # Each was current from its own commit to the next one's.
    for snapshot, following in zip(found[1:], found, strict=False):
        if NOW - following.committed_at < timedelta(seconds=keep):
            assert snapshot.snapshot_id in kept


def test_a_reader_before_a_compaction_keeps_its_files() -> None:
    found = lineage(5, 10, 15, 20, replaced=(1,))
    assert needed_by_readers(found, keep_seconds=60, now=NOW) == {3, 2}
    assert needed_by_readers(found, keep_seconds=8, now=NOW) == set()
    assert needed_by_readers(lineage(5, 10), keep_seconds=60, now=NOW) == set()
    assert needed_by_readers(lineage(5, 10, 15, 20, replaced=(0, 2)), keep_seconds=60, now=NOW) == {4, 3, 2, 1}


def test_a_reader_of_an_entity_keeps_the_files_that_a_fold_replaced() -> None:
    """Each fold replaces files, so that every state of the last while is needed, and none from before."""
    folds = [replace(snapshot, operation="overwrite") for snapshot in lineage(10, 100, 500, 700, 900)]
    assert needed_by_readers(folds, keep_seconds=600, now=NOW) == {5, 4, 3, 2}
    assert needed_by_readers(folds, keep_seconds=50, now=NOW) == {5, 4}


def test_routine_expiry_keeps_what_is_named_and_begins_late(lake: Lake) -> None:
    spec = some_table()
    lake.create(spec, stream=spec.short_name, identity="i")
    for number in range(10):
        append(lake, spec.name, [{"v": number}])
    ids = [snapshot.snapshot_id for snapshot in lake.table(spec.name).every_snapshot()]
    table = lake.table(spec.name)
    table.iceberg.manage_snapshots().create_tag(ids[1], "t").create_branch(ids[4], "b").commit()
    base = lake.table(spec.name)
    staged = stage(lake, base, rows(base, [{"v": 10}]), start_of_next(base))

    def expired(budget: int) -> list[int]:
        return snapshots_over_budget(lake.table(spec.name), budget=budget, keep_seconds=60, now=datetime.now(UTC))

    assert expired(8) == [] and expired(10) == []
    assert expired(3) == ids[5:7], "the branch with its ancestors stays, and so does a stage that is newer"
    lake.table(spec.name).iceberg.manage_snapshots().remove_branch("b").commit()
    assert expired(3) == [ids[0], *ids[2:7]]
    assert staged.snapshot_id not in expired(1)
