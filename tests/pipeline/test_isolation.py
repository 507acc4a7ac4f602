"""Isolation: poisonous rows are found by halving; what is too large, and what is the store's, is told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Unavailable
from frazil.events import first_position
from frazil.lake.catalog import Lake
from frazil.lake.derived import add_dead_letters, read_dead_letters
from frazil.pipeline.commit.isolation import MAX_ATTEMPTS, RefusedEvent, control_row, isolate
from frazil.pipeline.commit.row_errors import RowsRefused
from tests.kills import Address, address, killed_at
from tests.lake_fixtures import events, some_table

SPEC = some_table()
CONTROL = control_row(SPEC)


def batch(count: int) -> pa.Table:
    rows = pa.Table.from_batches([events(SPEC, [str(number) for number in range(count)], v=list(range(count)))])
    seq = pa.array([first_position(1) + number for number in range(count)], pa.int64())
    return rows.add_column(0, SPEC.row_schema().field("_seq"), seq)


def found(refuses: Callable[[pa.Table], bool], count: int, **words: int) -> tuple[list[int] | None, int]:
    """The numbers of the rows that are refused, and after how many attempts."""
    attempts = 0

    async def attempt(rows: pa.Table) -> RowsRefused | None:
        nonlocal attempts
        attempts += 1
        return RowsRefused("no") if refuses(rows) else None

    refused: list[RefusedEvent] | None = asyncio.run(isolate(batch(count), attempt, CONTROL, **words))
    if refused is None:
        return None, attempts
    return [int(event_id) for part in refused for event_id in part.rows["_id"].to_pylist()], attempts


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(count=st.integers(1, 200), data=st.data())
def test_exactly_the_poisonous_rows_are_refused(count: int, data: st.DataObject) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), max_size=8))
    refused, attempts = found(lambda rows: bool(poison & {int(one) for one in ids(rows)}), count)
    assert (None if refused is None else sorted(refused)) == (sorted(poison) or None)
    assert attempts <= 3 + len(poison) * (2 * count.bit_length() + 1)


def ids(rows: pa.Table) -> list[str]:
    return [one for one in rows["_id"].to_pylist() if one != "control"]


def test_rows_that_pass_by_now_are_not_refused() -> None:
    assert found(lambda rows: False, 10) == (None, 2)


def test_a_batch_whose_halves_pass_is_too_large() -> None:
    assert found(lambda rows: rows.num_rows > 6, 10)[0] == []


def test_attempts_are_bounded_and_what_is_left_is_refused_in_parts() -> None:
    refused, attempts = found(lambda rows: bool(ids(rows)), 100, max_attempts=16)
    assert sorted(refused or []) == list(range(100)) and attempts < 16 + 64
    refused, attempts = found(lambda rows: bool(ids(rows)), 10 * MAX_ATTEMPTS)
    assert len(refused or []) == 10 * MAX_ATTEMPTS and attempts <= 3 * MAX_ATTEMPTS


def test_where_the_control_row_fails_too_nothing_is_refused() -> None:
    with pytest.raises(Unavailable) as told:
        found(lambda rows: True, 10)
    assert not isinstance(told.value, RowsRefused)


def test_trouble_that_came_amid_it_and_passed_refuses_only_what_still_fails() -> None:
    """The store was away for a while: half of the rows were refused in that time, one is poisonous for good."""
    calls = iter(range(1000))

    def refuses(rows: pa.Table) -> bool:
        return "3" in ids(rows) or (bool(ids(rows)) and next(calls) in range(2, 6))

    assert found(refuses, 16)[0] == [3]


def bury(where: Address, name: str) -> None:
    async def attempt(rows: pa.Table) -> RowsRefused | None:
        return RowsRefused("no") if "3" in ids(rows) else None

    lake = where.open()
    refused = asyncio.run(isolate(batch(8), attempt, CONTROL)) or []
    letters = [letter for part in refused for letter in part.letters(SPEC, datetime.now(UTC))]
    add_dead_letters(lake, lake.table(name), letters)


def test_a_kill_after_it_leaves_no_trace(lake: Lake) -> None:
    table = lake.create(SPEC, stream="s", identity="i")
    killed_at("after_isolation", bury, address(lake), table.name)
    assert read_dead_letters(lake, table.name) == []
    bury(address(lake), table.name)
    assert [letter["id"] for letter in read_dead_letters(lake, table.name)] == ["3"]
