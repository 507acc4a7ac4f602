"""Partitions that a request, and a day, may have: beyond them the answer says so and nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.access import RateLimited
from frazil.bus.memory import MemoryBus
from frazil.gateway.ingest.partition_budget import PartitionBudget
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import on_the_bus, running


def keys(*numbers: int) -> list[tuple[int]]:
    return [(number,) for number in numbers]


def test_a_table_has_so_many_partitions_a_day() -> None:
    now = [86_400.0 * 20_000 + 3600]
    budget = PartitionBudget(3, clock=lambda: now[0])
    budget.take("a", keys(1, 2))
    budget.take("a", keys(1, 2, 3))
    budget.take("b", keys(4, 5, 6))
    budget.take("a", [])
    with pytest.raises(RateLimited) as refused:
        budget.take("a", keys(3, 4))
    assert (refused.value.code, refused.value.status) == ("too_many_partitions_today", 429)
    assert refused.value.retry_after_seconds == 86_400 - 3600
    budget.take("a", keys(3, 1))
    now[0] += 86_400
    budget.take("a", keys(4, 5, 6))


def on_days(*days: int) -> list[dict[str, Any]]:
    first = datetime(2000, 1, 1, tzinfo=UTC)
    return [{"data": {"at": (first + timedelta(days=day)).isoformat()}} for day in days]


@pytest.mark.parametrize("kind", ["log", "entity"])
async def test_the_gateway_refuses_and_writes_nothing(lake: Lake, tmp_path: Path, kind: str) -> None:
    bus = MemoryBus()
    limits: dict[str, Any] = {"max_partitions_per_request": 4, "max_partitions_per_day": 6}
    keyed = {"key": ["at"]} if kind == "entity" else {}
    async with running(bus, lake, tmp_path, **limits) as gateway:
        await gateway.declare(columns={"at": "timestamp"}, kind=kind, partition=["day(at)"], **keyed)
        answer = await gateway.send(on_days(*range(5)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_partitions")
        assert answer.json()["error"]["hint"]
        await gateway.accept(on_days(0, 1, 2, 3, 3))
        await gateway.accept(on_days(2, 3, 4, 5))
        answer = await gateway.send(on_days(5, 6))
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_partitions_today")
        assert int(answer.headers["retry-after"]) > 0
        await gateway.accept(on_days(5, 0))
        name = "main.orders" if kind == "log" else "main.orders__history"
        assert (await on_the_bus(bus, lake, name)).num_rows == 11


async def test_a_value_too_long_for_a_folder_is_named(lake: Lake, tmp_path: Path) -> None:
    bus = MemoryBus()
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare(partition=["item"])
        answer = await gateway.send([{"data": {"item": "ice"}}, {"data": {"item": "x" * 300}}])
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, "bad_events")
        assert [(detail["index"], detail["field"]) for detail in error["details"]] == [(1, "data.item")]
        assert (await on_the_bus(bus, lake)).num_rows == 0
