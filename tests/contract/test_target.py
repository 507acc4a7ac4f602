"""What a committer may rely on where it commits to: the table in memory behaves as a table of the lake does.

The simulation of the commit protocol proves something about the product only as far as this suite holds for both.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pytest

from frazil.errors import Unavailable, WatermarkTorn
from frazil.events import first_position
from frazil.events.declaration import TableSpec
from frazil.lake.commit import Outcome, publish_stage
from frazil.lake.commit import publish as lake_commit
from frazil.lake.commit.publish import AuditFailed
from frazil.lake.derived import add_dead_letters
from frazil.pipeline.commit import SparkCommitTarget
from frazil.pipeline.commit import target as pipeline_target
from frazil.pipeline.commit.isolation import RefusedEvent
from frazil.pipeline.commit.row_errors import RowsRefused
from frazil.pipeline.commit.target import Commit, CommitTarget, TableState, expire
from tests.flow.memory_target import MemoryCatalog, MemoryTable, MemoryTarget
from tests.lake_fixtures import SparkLake, events, some_table, stored_ids

Happening = Callable[[], object]
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
STOPS = ["before_stage", "after_stage_before_publish", "after_audit_before_publish", "before_publish"]


class Place(Protocol):
    """One table, what can be done to it from outside, and what a stranger reads from it."""

    spec: TableSpec

    def target(self) -> CommitTarget: ...
    def commit(self, base: TableState, commit: Commit, happens: Mapping[str, Happening]) -> tuple[Outcome, TableState]:
        """Commit, and let things happen at these crash points, once each."""

    def ids(self) -> list[str]: ...
    def marked(self) -> int | None: ...
    def compact(self) -> None: ...
    def expire_all(self) -> None: ...
    def roll_back(self) -> None:
        """Make the parent of the current snapshot current, by hand."""


class InMemory:
    def __init__(self) -> None:
        self.spec = some_table()
        self.catalog = MemoryCatalog(self.spec, stream="s", identity="i", watermark=first_position(1))

    def target(self) -> MemoryTarget:
        return MemoryTarget(self.catalog)

    def commit(self, base: TableState, commit: Commit, happens: Mapping[str, Happening]) -> tuple[Outcome, TableState]:
        left, steps = dict(happens), self.target().commit_steps(base, commit)
        while True:
            try:
                left.pop(next(steps), lambda: None)()
            except StopIteration as finished:
                outcome: tuple[Outcome, TableState] = finished.value
                return outcome

    def ids(self) -> list[str]:
        return [row[1] for row in sorted(self.catalog.table.rows)]

    def marked(self) -> int | None:
        return self.catalog.table.marked_watermark()

    def compact(self) -> None:
        self.catalog.compact()

    def expire_all(self) -> None:
        self.catalog.expire(1000)

    def roll_back(self) -> None:
        current = self.catalog.table.current
        assert current is not None and current.parent_id is not None
        self.catalog.roll_back(current.parent_id)


class OnSpark:
    def __init__(self, spark_lake: SparkLake, patch: pytest.MonkeyPatch) -> None:
        self.spec = some_table()
        self._lake, self._session, self._patch = spark_lake.lake, spark_lake.session, patch
        self._name = spark_lake.lake.create(self.spec, stream="s", identity="i").name

    def target(self) -> SparkCommitTarget:
        return SparkCommitTarget(self._lake, self._name, self._session)

    def commit(self, base: TableState, commit: Commit, happens: Mapping[str, Happening]) -> tuple[Outcome, TableState]:
        left = dict(happens)

        def crash_point(name: str) -> None:
            left.pop(name, lambda: None)()

        with self._patch.context() as patch:
            patch.setattr(pipeline_target, "crash_point", crash_point)
            patch.setattr(lake_commit, "crash_point", crash_point)
            return self.target().commit(base, commit)

    def ids(self) -> list[str]:
        return stored_ids(self._lake, self._name)

    def marked(self) -> int | None:
        return self._lake.table(self._name).marked_watermark()

    def compact(self) -> None:
        options = "map('rewrite-all', 'true', 'min-input-files', '1')"
        call = f"CALL frazil.system.rewrite_data_files(table => '{self._name}', options => {options})"
        assert self._session.sql(call).collect()[0]["rewritten_data_files_count"] > 0

    def expire_all(self) -> None:
        expire(self._session, f"frazil.{self._name}", older_than=datetime.now(UTC) + timedelta(hours=1))

    def roll_back(self) -> None:
        parent = self._lake.table(self._name).snapshots()[0].parent_id
        self._session.sql(f"CALL frazil.system.set_current_snapshot('{self._name}', {parent})")


@pytest.fixture(params=["memory", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark])])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "memory":
        return InMemory()
    return OnSpark(request.getfixturevalue("spark_lake"), monkeypatch)


def commit_of(place: Place, first: int, ids: str, batch: str) -> Commit:
    """Messages of one event each, from sequence `first` on."""
    rows = pa.Table.from_batches([events(place.spec, list(ids), received_at=NOW, v=list(range(len(ids))))])
    field = place.spec.row_schema().field("_seq")
    rows = rows.add_column(0, field, pa.array([first_position(first + n) for n in range(len(ids))], pa.int64()))
    return Commit(batch, first_position(first), first_position(first + len(ids)), rows)


def committed(place: Place, first: int, ids: str) -> Outcome:
    target = place.target()
    outcome, _ = target.commit(target.load(), commit_of(place, first, ids, f"{first}-{ids}"))
    return outcome


def test_a_new_table_has_its_first_watermark_and_no_rows(place: Place) -> None:
    state = place.target().load()
    assert (state.watermark, state.snapshot_id, place.ids()) == (first_position(1), None, [])
    assert (state.stream, state.stream_identity, state.spec) == ("s", "i", place.spec)
    assert [batch.num_rows for batch in place.target().ids_since(NOW) if batch.num_rows] == []


def test_rows_and_watermark_become_visible_together(place: Place) -> None:
    seen: list[Any] = []

    def look() -> None:
        state = place.target().load()
        seen.append((place.ids(), state.watermark))

    outcome, after = place.commit(place.target().load(), commit_of(place, 1, "ab", "x"), dict.fromkeys(STOPS, look))
    assert outcome is Outcome.PUBLISHED
    assert seen == [([], first_position(1))] * 4
    assert place.ids() == ["a", "b"] and after.watermark == place.marked() == first_position(3)
    assert place.target().load().snapshot_id == after.snapshot_id is not None


def test_a_commit_without_rows_moves_the_watermark(place: Place) -> None:
    empty = commit_of(place, 1, "a", "x")
    empty = Commit(empty.batch, empty.previous_watermark, empty.watermark, empty.rows.slice(0, 0))
    outcome, after = place.target().commit(place.target().load(), empty)
    assert outcome is Outcome.PUBLISHED and after.watermark == place.marked() == first_position(2) and place.ids() == []


def test_ids_are_those_received_since(place: Place) -> None:
    committed(place, 1, "ab")
    target = place.target()
    target.load()
    found = pa.Table.from_batches(list(target.ids_since(NOW)))
    assert sorted(found["_id"].to_pylist()) == ["a", "b"]
    assert sorted(found["_seq"].to_pylist()) == [first_position(1), first_position(2)]
    assert set(found["_received_at"].to_pylist()) == {NOW}
    assert not any(batch.num_rows for batch in target.ids_since(NOW + timedelta(microseconds=1)))


def test_an_attempt_is_seen_by_nobody_and_leaves_nothing(place: Place) -> None:
    committed(place, 1, "ab")
    target = place.target()
    before = target.load()
    target.attempt(commit_of(place, 3, "c", "x").rows)
    target.forget_attempts()
    after = target.load()
    assert (after.snapshot_id, after.watermark, place.ids()) == (before.snapshot_id, before.watermark, ["a", "b"])
    assert committed(place, 3, "c") is Outcome.PUBLISHED and place.ids() == ["a", "b", "c"]


def test_dead_letters_are_written_once_and_known_above_the_watermark(place: Place) -> None:
    target = place.target()
    base = target.load()
    rows = commit_of(place, 1, "abc", "x").rows
    letters = RefusedEvent(rows, RowsRefused("no")).letters(place.spec, NOW)
    assert target.dead_positions(base) == set()
    assert target.add_dead_letters(base, letters[:2]) == 2
    assert target.add_dead_letters(base, letters) == 1 and target.add_dead_letters(base, letters) == 0
    assert target.dead_positions(base) == {first_position(1), first_position(2), first_position(3)}
    after = place.target().load()
    outcome, after = place.target().commit(after, Commit("y", after.watermark, first_position(3), rows.slice(0, 0)))
    assert outcome is Outcome.PUBLISHED and place.target().dead_positions(after) == {first_position(3)}
    with pytest.raises(Unavailable):
        target.add_dead_letters(
            base, RefusedEvent(commit_of(place, 9, "z", "x").rows, RowsRefused("no")).letters(place.spec, NOW)
        )


@pytest.mark.parametrize("stop", STOPS)
def test_maintenance_in_between_asks_for_a_new_stage(place: Place, stop: str) -> None:
    committed(place, 1, "ab")
    base = place.target().load()
    outcome, after = place.commit(base, commit_of(place, 3, "c", "x"), {stop: place.compact})
    assert outcome is Outcome.STAGE_AGAIN and place.ids() == ["a", "b"]
    assert after.watermark == base.watermark and after.snapshot_id != base.snapshot_id
    outcome, _ = place.target().commit(after, commit_of(place, 3, "c", "y"))
    assert outcome is Outcome.PUBLISHED and place.ids() == ["a", "b", "c"]


@pytest.mark.parametrize("stop", STOPS[1:])
def test_a_stage_that_expired_is_not_published(place: Place, stop: str) -> None:
    committed(place, 1, "ab")
    base = place.target().load()
    if stop == "after_stage_before_publish":
        with pytest.raises(AuditFailed):
            place.commit(base, commit_of(place, 3, "c", "x"), {stop: place.expire_all})
    else:
        outcome, _ = place.commit(base, commit_of(place, 3, "c", "x"), {stop: place.expire_all})
        assert outcome is Outcome.STAGE_AGAIN
    after = place.target().load()
    assert place.ids() == ["a", "b"] and after.watermark == base.watermark
    outcome, _ = place.target().commit(after, commit_of(place, 3, "c", "y"))
    assert outcome is Outcome.PUBLISHED and place.ids() == ["a", "b", "c"]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("others", ["cd", "c"])
def test_another_committer_in_between_wins(place: Place, stop: str, others: str) -> None:
    committed(place, 1, "ab")
    base = place.target().load()
    other = {stop: lambda: committed(place, 3, others)}
    outcome, after = place.commit(base, commit_of(place, 3, "cd", "x"), other)
    if stop in STOPS[:2]:
        assert outcome is Outcome.STAGE_AGAIN
    else:
        assert outcome is (Outcome.ALREADY_DONE if others == "cd" else Outcome.SUPERSEDED)
    assert place.ids() == ["a", "b", *others] and after.watermark == first_position(3 + len(others))


def test_a_mark_outlives_its_snapshot(place: Place) -> None:
    committed(place, 1, "a")
    committed(place, 2, "b")
    place.compact()
    place.expire_all()
    assert place.marked() is None and place.target().load().watermark == first_position(3)
    assert committed(place, 3, "c") is Outcome.PUBLISHED and place.marked() == first_position(4)


@pytest.mark.parametrize("expired", [False, True])
def test_a_roll_back_by_hand_is_torn(place: Place, expired: bool) -> None:
    committed(place, 1, "a")
    committed(place, 2, "b")
    place.roll_back()
    if expired:
        place.expire_all()
    with pytest.raises(WatermarkTorn):
        _ = place.target().load().watermark


def test_a_roll_back_of_maintenance_is_fine(place: Place) -> None:
    committed(place, 1, "ab")
    place.compact()
    place.roll_back()
    assert place.target().load().watermark == first_position(3)
    assert committed(place, 3, "c") is Outcome.PUBLISHED


def test_tidying_keeps_the_newest(place: Place) -> None:
    for number, name in enumerate("abcdef"):
        committed(place, 1 + number, name)
    assert place.target().tidy(keep_snapshots=4) == 2
    assert place.target().tidy(keep_snapshots=4) == 0
    assert place.ids() == list("abcdef") and place.target().load().watermark == place.marked() == first_position(7)


def test_the_steps_in_memory_are_the_crash_points_of_the_lake() -> None:
    def points(code: object) -> list[str]:
        return re.findall(r'(?:crash_point\(|yield )"(\w+)"', inspect.getsource(code))  # type: ignore[arg-type]

    assert points(MemoryTarget.commit_steps) == points(SparkCommitTarget.commit)
    assert points(MemoryTarget.publish) == points(publish_stage)
    assert points(MemoryTarget.dead_letter_steps) == points(add_dead_letters)
    assert isinstance(InMemory().target().load(), MemoryTable)
