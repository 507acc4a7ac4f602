"""Publish: one compare-and-swap, and an honest word about what happened, whatever came between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from frazil.errors import Unavailable
from frazil.events import first_position
from frazil.lake.catalog import WATERMARK, Lake, LakeTable, changed_by
from frazil.lake.commit import Outcome, audit, publish_stage
from frazil.lake.commit.publish import AuditFailed
from tests.lake.staging import append, commit, rows, stage, start_of_next
from tests.lake_fixtures import some_table, stored_ids


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.create(some_table(), stream="s", identity="i")


def staged(lake: Lake, base: LakeTable, *ids: str) -> tuple[Snapshot, int]:
    watermark = start_of_next(base)
    return stage(lake, base, rows(base, [{"_id": name, "v": 1} for name in ids]), watermark), watermark


def test_staged_rows_are_seen_only_after_publish(lake: Lake, table: LakeTable) -> None:
    snapshot, watermark = staged(lake, table, "a", "b")
    before = lake.table(table.name)
    assert before.snapshot_id is None and before.watermark == first_position(1) and stored_ids(lake, table.name) == []
    published = publish_stage(lake, table, snapshot, watermark)
    assert published.outcome is Outcome.PUBLISHED
    assert published.table.snapshot_id == snapshot.snapshot_id
    assert published.table.watermark == published.table.marked_watermark() == watermark == first_position(2)
    assert stored_ids(lake, table.name) == ["a", "b"]


def test_publishing_twice_is_publishing_once(lake: Lake, table: LakeTable) -> None:
    snapshot, watermark = staged(lake, table, "a")
    first = publish_stage(lake, table, snapshot, watermark)
    again = publish_stage(lake, table, snapshot, watermark)
    assert again.outcome is Outcome.PUBLISHED and again.table.metadata_location == first.table.metadata_location
    assert stored_ids(lake, table.name) == ["a"]


def test_a_watermark_that_was_moved_alone_since_the_last_load_fails_the_swap(lake: Lake, table: LakeTable) -> None:
    """A repair changes the property and no snapshot: the swap must not write over it."""
    snapshot, watermark = staged(lake, table, "a")
    loaded = lake.table(table.name)
    lake.set_properties(table.name, {WATERMARK: str(first_position(9))})
    result = publish_stage(lake, table, snapshot, watermark, staged=loaded)
    assert result.outcome is Outcome.ALREADY_DONE and result.table.watermark == first_position(9)
    assert stored_ids(lake, table.name) == []


def test_a_range_that_another_committed_is_done(lake: Lake, table: LakeTable) -> None:
    ours, watermark = staged(lake, table, "a")
    theirs, _ = staged(lake, table, "a")
    assert publish_stage(lake, table, theirs, watermark).outcome is Outcome.PUBLISHED
    assert publish_stage(lake, table, ours, watermark).outcome is Outcome.ALREADY_DONE
    assert stored_ids(lake, table.name) == ["a"]


def test_a_range_that_is_no_longer_next_is_superseded(lake: Lake, table: LakeTable) -> None:
    far = first_position(5)
    ours = stage(lake, table, rows(table, [{"_id": "a"}, {"_id": "b"}]), far)
    append(lake, table.name, [{"_id": "a"}])
    result = publish_stage(lake, table, ours, far)
    assert result.outcome is Outcome.SUPERSEDED and result.table.watermark == first_position(2)
    assert stored_ids(lake, table.name) == ["a"]


def test_a_table_made_anew_under_the_name_is_not_touched(lake: Lake, table: LakeTable) -> None:
    snapshot, watermark = staged(lake, table, "a")
    lake.drop(table.name)
    lake.create(table.spec, stream="s", identity="another")
    assert publish_stage(lake, table, snapshot, watermark).outcome is Outcome.SUPERSEDED
    assert stored_ids(lake, table.name) == []


def test_maintenance_in_between_means_stage_again(lake: Lake, table: LakeTable) -> None:
    base = append(lake, table.name, [{"_id": "a"}])
    snapshot, watermark = staged(lake, base, "b")
    iceberg = lake.catalog.load_table(table.name)
    iceberg.overwrite(rows(base, [{"_id": "a", "_seq": first_position(1)}]))  # a rewrite, by another hand than ours
    result = publish_stage(lake, base, snapshot, watermark)
    assert result.outcome is Outcome.STAGE_AGAIN and result.table.watermark == base.watermark
    assert commit(lake, result.table, [{"_id": "b"}]).outcome is Outcome.PUBLISHED
    assert stored_ids(lake, table.name) == ["a", "b"]


def test_an_expired_stage_means_stage_again(lake: Lake, table: LakeTable) -> None:
    base = append(lake, table.name, [{"_id": "a"}])
    snapshot, watermark = staged(lake, base, "b")
    lake.catalog.load_table(table.name).maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert publish_stage(lake, base, snapshot, watermark).outcome is Outcome.STAGE_AGAIN


def test_a_new_column_in_between_does_not_stand_in_the_way(lake: Lake, table: LakeTable) -> None:
    snapshot, watermark = staged(lake, table, "a")
    lake.alter(table.name, changed_by({"add_columns": {"note": "string"}}))
    result = publish_stage(lake, table, snapshot, watermark)
    assert result.outcome is Outcome.PUBLISHED and "note" in result.table.spec.columns
    assert result.table.rows_at([first_position(1)])["note"].to_pylist() == [None]


class Replies:
    """A catalog whose answers get lost, before or after the deed."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._commit = lake.catalog.commit_table
        self.failing: Callable[[int], Exception | None] = lambda call: None
        self.take_effect = True
        monkeypatch.setattr(lake.catalog, "commit_table", self._call)

    def _call(self, *arguments: Any) -> Any:
        self.calls += 1
        error = self.failing(self.calls)
        if error is None:
            return self._commit(*arguments)
        if self.take_effect:
            self._commit(*arguments)
        raise error


LOST = [
    OSError("connection reset by peer"),
    CommitStateUnknownException("no answer"),
    CommitFailedException("the retry of a lost answer finds its own commit"),
    OperationalError("UPDATE", {}, Exception("server closed the connection")),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_reply_lost_after_it_took_effect(
    lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    snapshot, watermark = staged(lake, table, "a")
    replies = Replies(lake, monkeypatch)
    replies.failing = lambda call: error
    result = publish_stage(lake, table, snapshot, watermark)
    assert result.outcome is Outcome.PUBLISHED and replies.calls == 1
    assert result.table.watermark == watermark and stored_ids(lake, table.name) == ["a"]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_request_lost_before_it_took_effect_is_sent_again(
    lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    snapshot, watermark = staged(lake, table, "a")
    replies = Replies(lake, monkeypatch)
    replies.take_effect = False
    replies.failing = lambda call: error if call < 3 else None
    result = publish_stage(lake, table, snapshot, watermark)
    assert result.outcome is Outcome.PUBLISHED and replies.calls == 3
    assert stored_ids(lake, table.name) == ["a"]


def test_a_reply_lost_at_the_last_try_is_looked_after_too(
    lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, watermark = staged(lake, table, "a")
    replies = Replies(lake, monkeypatch)

    def failing(call: int) -> Exception:
        replies.take_effect = call == 5
        return OSError("connection reset by peer")

    replies.failing = failing
    assert publish_stage(lake, table, snapshot, watermark).outcome is Outcome.PUBLISHED and replies.calls == 5
    assert stored_ids(lake, table.name) == ["a"]


def test_a_catalog_that_stays_away_is_unavailable_and_changes_nothing(
    lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, watermark = staged(lake, table, "a")
    replies = Replies(lake, monkeypatch)
    replies.take_effect = False
    replies.failing = lambda call: OSError("no route to host")
    with pytest.raises(Unavailable) as refused:
        publish_stage(lake, table, snapshot, watermark)
    assert refused.value.transient and refused.value.code == "publish_failed"
    assert lake.table(table.name).watermark == first_position(1)
    monkeypatch.undo()
    assert publish_stage(lake, table, snapshot, watermark).outcome is Outcome.PUBLISHED


def test_eight_publishers_and_eight_changes_at_once_lose_nothing(
    lake: Lake, table: LakeTable, open_again: Callable[[], Lake]
) -> None:
    """Four committers race for the same ranges while four others add columns: each row once, each column there."""
    ranges = 3
    lakes = [lake, *(open_again() for _ in range(3))]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        mine = lakes[number % 4]
        start.wait(30)
        if number >= 4:
            for i in range(2):
                mine.alter(table.name, changed_by({"add_columns": {f"c{number}_{i}": "long"}}))
            return
        for _ in range(200):
            base = mine.table(table.name)
            if base.watermark >= first_position(1 + ranges):
                return
            try:
                commit(mine, base, [{"_id": f"r{base.watermark}a"}, {"_id": f"r{base.watermark}b"}])
            except (CommitFailedException, AuditFailed, Unavailable):
                continue  # the stage lost to another writer, or the changes came too thick: as a committer, begin again
        raise AssertionError("never got there")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    after = lake.table(table.name)
    assert after.watermark == first_position(1 + ranges)
    expected = [f"r{first_position(1 + n)}{which}" for n in range(ranges) for which in "ab"]
    assert stored_ids(lake, table.name) == expected
    assert {name for name in after.spec.columns if name != "v"} == {f"c{n}_{i}" for n in range(4, 8) for i in range(2)}
    assert len([s for s in after.snapshots() if s.watermark is not None]) == ranges
    for opened in lakes[1:]:
        opened.close()


def test_an_audit_refuses_what_was_not_asked_for(lake: Lake, table: LakeTable) -> None:
    snapshot, _ = staged(lake, table, "a")
    batch = snapshot.summary.additional_properties["wap.id"]  # type: ignore[union-attr]
    now = lake.table(table.name)
    with pytest.raises(AuditFailed, match="has 2 rows and 1 were staged"):
        audit(table, now, batch, rows=2)
    with pytest.raises(AuditFailed, match="nothing was staged"):
        audit(table, now, "another", rows=1)
    moved = append(lake, table.name, [{"_id": "b"}])
    with pytest.raises(AuditFailed, match="another snapshot"):
        audit(moved, now, batch, rows=1)


def test_metadata_files_do_not_pile_up(lake: Lake, table: LakeTable) -> None:
    """Each publish writes a metadata file; those that fell out of the table's log are deleted with it."""
    lake.set_properties(table.name, {"write.metadata.previous-versions-max": "2"})
    for number in range(4):
        base = lake.table(table.name)
        snapshot, watermark = staged(lake, base, f"e{number}")
        before = set(metadata_files(base))
        fallen = {Path(entry.metadata_file).name for entry in lake.table(table.name).iceberg.metadata.metadata_log[:1]}
        assert fallen <= before
        publish_stage(lake, base, snapshot, watermark)
        assert not fallen & set(metadata_files(base)) or number == 0
    assert stored_ids(lake, table.name) == [f"e{number}" for number in range(4)]


def metadata_files(table: LakeTable) -> list[str]:
    folder = Path(table.iceberg.location().removeprefix("file://")) / "metadata"
    return [path.name for path in folder.glob("*.metadata.json")]


def test_the_watermark_is_in_the_snapshot_and_in_the_properties(lake: Lake, table: LakeTable) -> None:
    after = append(lake, table.name, [{"_id": "a"}])
    newest = after.snapshots()[0]
    assert str(newest.watermark) == after.properties[WATERMARK]
    assert newest.added_rows == newest.total_rows == 1 and newest.operation == "append" and newest.batch


def test_a_stage_amid_a_change_of_the_table_is_a_conflict_that_is_tried_again(lake: Lake, table: LakeTable) -> None:
    """A stage takes the next sequence number and leaves the main branch: only the number of the change is taken."""
    commit(lake, table, [{"_id": "first", "v": 1}])
    tries: list[int] = []

    def apply(current: LakeTable) -> bool:
        with current.iceberg.transaction() as transaction:
            transaction.append(rows(current, [{"_id": "loaded", "v": 1}]))
            if not tries:
                staged(lake, lake.table(table.name), "staged")
            tries.append(1)
        return True

    lake.update_table(table.name, apply)
    assert len(tries) == 2 and stored_ids(lake, table.name) == ["first", "loaded"]
