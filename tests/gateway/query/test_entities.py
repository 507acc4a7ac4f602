"""Entities as callers see them: the state of each key, at every freshness, and the history behind it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
PEOPLE = {"id": "long", "name": "string", "team": "string", "age": "int"}


async def people(house: House, **more: Any) -> str:
    return await house.table(PEOPLE, kind="entity", key=["id"], **more)


async def do(house: House, table: str, *events: dict[str, Any]) -> str:
    token: str = (await house.running.accept(list(events), table=table))["token"]
    return token


def upsert(key: int, ts: str | None = None, **data: Any) -> dict[str, Any]:
    return {"data": {"id": key, **data}} | ({"ts": f"2026-01-01T00:00:{ts}Z"} if ts else {})


def patch(key: int, ts: str | None = None, **data: Any) -> dict[str, Any]:
    return {**upsert(key, ts, **data), "op": "patch"}


def delete(key: int, ts: str | None = None) -> dict[str, Any]:
    return {**upsert(key, ts), "op": "delete"}


async def test_the_newest_event_of_a_key_counts(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a", age=1), upsert(2, name="b"), upsert(1, name="c"), delete(2))
    assert await house.rows(f"SELECT id, name, age FROM {t}") == [[1, "c", None]]
    assert await house.rows(f"SELECT count(*) FROM {t}__history") == [[4]]
    await house.commit(f"{t}__history")
    for freshness in ("live", "committed"):
        assert await house.rows(f"SELECT id, name, age FROM {t}", freshness=freshness) == [[1, "c", None]]


async def test_a_patch_changes_what_it_gives_and_null_is_a_value(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a", team="x", age=1), patch(1, team=None), patch(1, age=7))
    await do(house, t, patch(2, name="new"))
    expected = [[1, "a", None, 7], [2, "new", None, None]]
    assert await house.rows(f"SELECT id, name, team, age FROM {t} ORDER BY id") == expected
    assert await house.rows(f"SELECT _op, _patch FROM {t}__history ORDER BY _seq") == [
        ["upsert", None],
        ["patch", ["team"]],
        ["patch", ["age"]],
        ["patch", ["name"]],
    ]


async def test_an_event_of_an_earlier_time_than_one_before_it_does_not_apply(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, "10", name="now"), delete(2, "10"), upsert(1, "05", name="old"), upsert(2, "05"))
    await do(house, t, patch(1, "05", team="late"), patch(1, "10", age=3))
    assert await house.rows(f"SELECT id, name, team, age FROM {t}") == [[1, "now", None, 3]]
