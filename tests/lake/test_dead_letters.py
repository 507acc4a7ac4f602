"""Dead letters: each position once, whatever is killed; taken out in one commit; gone and back with their table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.errors import Unavailable
from frazil.events import first_position
from frazil.events.positions import position
from frazil.lake.catalog import WATERMARK, Lake, LakeTable, plan_purge
from frazil.lake.derived import (
    DeadLetter,
    add_dead_letters,
    dead_letters_table,
    dead_positions,
    drop_embeddings,
    read_dead_letters,
    remove_dead_letters,
    undrop_embeddings,
)
from tests.kills import Address, address, killed_at
from tests.lake_fixtures import some_table

NOW = datetime(2026, 5, 4, 3, 2, 1, 7, tzinfo=UTC)


def letter(at: int, event_id: str = "a") -> DeadLetter:
    return DeadLetter(
        position=at,
        id=event_id,
        op="insert",
        ts=NOW,
        received_at=NOW,
        actor=None,
        source="test",
        workspace=None,
        data='{"v":1}',
        code="stage_failed",
        reason="no file can hold it",
        failed_at=NOW,
    )


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.create(some_table(), stream="s", identity="i")


def found(lake: Lake, table: LakeTable) -> list[int]:
    return [row["position"] for row in read_dead_letters(lake, table.name)]


def test_a_letter_is_written_once_and_read_as_it_was(lake: Lake, table: LakeTable) -> None:
    assert dead_letters_table(lake, table.name) is None and read_dead_letters(lake, table.name) == []
    first, second = letter(position(1, 3)), letter(position(1, 1), "b")
    assert add_dead_letters(lake, table, [first]) == 1
    assert add_dead_letters(lake, table, [first, second]) == 1
    assert add_dead_letters(lake, table, [first, second]) == 0
    rows = read_dead_letters(lake, table.name)
    assert [row["position"] for row in rows] == [second.position, first.position]
    assert rows[1] == {**vars(first), "stream": "i"}
    assert dead_positions(dead_letters_table(lake, table.name), "i", at_least=position(1, 2)) == {first.position}
    assert dead_positions(dead_letters_table(lake, table.name), "another stream") == set()


def test_the_first_letters_are_read_without_the_others(
    lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [letter(position(1, at), str(at)) for at in (4, 0, 3, 1, 2)]
    for one in letters:
        assert add_dead_letters(lake, table, [one]) == 1
    scanned: list[str | None] = []
    scan = LakeTable.scan

    def noting(self: LakeTable, columns: Any = None, *, where: str | None = None) -> Any:
        if columns is None:
            scanned.append(where)
        return scan(self, columns, where=where)

    monkeypatch.setattr(LakeTable, "scan", noting)
    assert [row["id"] for row in read_dead_letters(lake, table.name, limit=2)] == ["0", "1"]
    assert [row["id"] for row in read_dead_letters(lake, table.name, limit=5)] == ["0", "1", "2", "3", "4"]
    assert scanned == [f"position <= {position(1, 1)}", None]


def test_a_committer_that_was_overtaken_writes_none(lake: Lake, table: LakeTable) -> None:
    lake.set_properties(table.name, {WATERMARK: str(first_position(2))})
    with pytest.raises(Unavailable) as refused:
        add_dead_letters(lake, table, [letter(position(1, 0))])
    assert refused.value.code == "superseded" and found(lake, table) == []


def test_taking_letters_out(lake: Lake, table: LakeTable) -> None:
    add_dead_letters(lake, table, [letter(position(1, at)) for at in range(3)])
    assert remove_dead_letters(lake, table.name, [("i", position(1, 1)), ("other", position(1, 0))]) == 1
    assert remove_dead_letters(lake, table.name, [("i", position(1, 1))]) == 0
    assert found(lake, table) == [position(1, 0), position(1, 2)]
    assert remove_dead_letters(lake, table.name, [("i", position(1, 0)), ("i", position(1, 2))]) == 2
    assert found(lake, table) == [] and remove_dead_letters(lake, "main.never", [("i", 1)]) == 0


def add(where: Address, name: str) -> None:
    lake = where.open()
    add_dead_letters(lake, lake.table(name), [letter(position(1, 0)), letter(position(1, 2))])


def remove(where: Address, name: str) -> None:
    remove_dead_letters(where.open(), name, [("i", position(1, 0))])


@pytest.mark.parametrize("point", ["before_dead_letters_publish", "after_dead_letters_publish"])
def test_a_kill_amid_writing_leaves_each_letter_once(lake: Lake, table: LakeTable, point: str) -> None:
    killed_at(point, add, address(lake), table.name)
    add(address(lake), table.name)
    assert found(lake, table) == [position(1, 0), position(1, 2)]


@pytest.mark.parametrize("point", ["before_dead_letters_removal", "after_dead_letters_removal"])
def test_a_kill_amid_taking_out_loses_no_other_letter(lake: Lake, table: LakeTable, point: str) -> None:
    add(address(lake), table.name)
    killed_at(point, remove, address(lake), table.name)
    assert found(lake, table)[-1] == position(1, 2)
    remove(address(lake), table.name)
    assert found(lake, table) == [position(1, 2)]


def test_they_go_and_come_back_with_their_table(lake: Lake, table: LakeTable) -> None:
    add_dead_letters(lake, table, [letter(position(1, 0))])
    drop_embeddings(lake, table.name)
    lake.drop(table.name)
    assert dead_letters_table(lake, table.name) is None
    assert len(plan_purge(lake, table.name)) == 2
    lake.undrop(table.name)
    undrop_embeddings(lake, table.name)
    assert found(lake, table) == [position(1, 0)]


def test_those_of_an_entity_go_by_its_name(lake: Lake) -> None:
    spec = some_table(kind="entity", key=["v"])
    history = lake.create(spec.history(), stream="s", identity="i")
    add_dead_letters(lake, history, [replace(letter(position(1, 0)), op="patch")])
    assert [row["op"] for row in read_dead_letters(lake, spec.name)] == ["patch"]
