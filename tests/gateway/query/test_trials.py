"""The journal of trials is a table: what was measured is found by SQL, by whoever may read all of what it is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.lake.derived import journal_trials
from tests.gateway.query.conftest import House
from tests.serving.trials.conftest import trial

pytestmark = pytest.mark.asyncio(loop_scope="module")


def row(number: int, **changed: Any) -> dict[str, Any]:
    figures = {"kind": "pq", "config": '{"kind": "pq", "candidates": 50}', "recall": 0.9 + number / 100, "p50_ms": 0.5}
    return trial(trial=f"t{number}", tried_at=datetime.now(UTC), **figures, **changed)


async def test_trials_are_asked_by_sql_under_the_grants_of_their_table(house: House) -> None:
    table = await house.table({"body": "string"}, text=["body"])
    spec = house.lake.table(f"main.{table}").spec
    journal_trials(house.lake, spec, "r1", [row(1), row(2)])
    journal_trials(house.lake, spec, "r1", [row(3)])
    await house.running.gateway.directory.refresh()
    asked = f"SELECT trial, recall, json_extract(config, '$.candidates')::INT FROM {table}__trials ORDER BY recall DESC"
    wanted = [["t3", 0.93, 50], ["t2", 0.92, 50], ["t1", 0.91, 50]]
    assert await house.rows(asked) == wanted
    for grants, may in (
        (("sql", f"read:{table}"), True),
        (("sql", {"scope": f"read:{table}", "where": "body = 'a'"}), False),
        (("sql", {"scope": f"read:{table}", "mask": ["body"]}), False),
        (("sql",), False),
    ):
        token = await house.token(*grants)
        answer = await house.ask(asked, token=token)
        assert (answer.status_code == 200) == may, answer.text
        assert may or answer.json()["error"]["code"] == "table_not_found"


async def test_the_same_batch_again_adds_nothing_and_another_in_between_is_noticed(house: House) -> None:
    table = await house.table({"body": "string"}, text=["body"])
    spec = house.lake.table(f"main.{table}").spec
    rows = [row(1), row(2)]
    for _ in range(2):
        journal_trials(house.lake, spec, "r1", rows)
    journal_trials(house.lake, spec, "r1", [])
    await house.running.gateway.directory.refresh()
    assert await house.rows(f"SELECT count(*) FROM {table}__trials") == [[2]]


async def test_nobody_declares_or_grants_a_journal_by_itself(house: House) -> None:
    declared = await house.http.post("/v1/tables", json={"name": "mine__trials", "columns": {"a": "long"}})
    assert declared.status_code == 422 and declared.json()["error"]["code"] == "reserved_name"
    granted = await house.http.post("/v1/tokens", json={"name": "x", "grants": ["read:mine__trials"]})
    assert granted.status_code == 422 and "read:mine" in granted.json()["error"]["hint"]
