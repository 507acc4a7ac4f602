"""A table that is dropped and brought back while others query, publish, search and look: only promised answers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake
from frazil.serving.sql import QueryPool, QuerySettings
from tests.gateway.http.fuzz import Incidents
from tests.gateway.http.harness import Running, commit, running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.gateway.search.place import BY_WORD, NOTES

ROUNDS = 20
MOST_ROUNDS = 500
"""All go on until each of these has succeeded once: whether the table is there when one asks is up to the others."""
MUST_SUCCEED = ("drop", "undrop", "publish", "live", "search")
# A table that is not there, that is there already, or has just become another: all of these may be asked again.
PROMISED = {
    "artifact_of_other_stream",
    "busy",
    "cut_moved",
    "files_unreadable",
    "history_missing",
    "no_generation",
    "pipeline_unavailable",
    "row_not_found",
    "snapshot_not_found",
    "table_changed",
    "table_exists",
    "table_not_found",
    "table_replaced",
    "warming",
}
USERS: dict[str, Any] = {"kind": "entity", "key": ["title"], "columns": NOTES["columns"], "text": ["body"]}


@pytest.fixture
async def gateway(lake: Lake, memory_bus: MemoryBus, tmp_path: Path) -> AsyncIterator[Running]:
    pool = QueryPool(QuerySettings(workers=2), lake.warehouse, readable=[tmp_path / "audit", tmp_path / "cache-one"])
    async with running(memory_bus, lake, tmp_path, pool=pool, pace=BY_WORD) as started:
        pipeline_says(tmp_path, "ok")
        yield started


@pytest.mark.parametrize("kind", ["log", "entity"])
async def test_only_promised_answers(gateway: Running, lake: Lake, memory_bus: MemoryBus, kind: str) -> None:
    http, numbers = gateway.http, itertools.count()
    declared = {**(NOTES if kind == "log" else {**USERS, "name": "notes"})}
    assert (await http.post("/v1/tables", json=declared)).status_code == 201
    row = {"title": "a", "body": "green tea", "year": 1}
    await gateway.accept([{"id": "first", "data": row}], table="notes")
    if kind == "log":
        await commit(memory_bus, lake, "main.notes")
    first = lake.table("main.notes").snapshot_id or 1
    path = "/v1/tables/notes"

    def publish() -> Awaitable[httpx.Response]:
        return http.post(f"{path}/events", json={"events": [{"id": f"e{next(numbers)}", "data": row}]})

    def query(**more: Any) -> Callable[[], Awaitable[httpx.Response]]:
        return lambda: http.post("/v1/query", json={"sql": "SELECT count(*) FROM notes", "timeout_s": 20, **more})

    asking: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
        "drop": lambda: http.delete(path),
        "drop too": lambda: http.delete(path),
        "undrop": lambda: http.post(f"{path}/undrop"),
        "undrop too": lambda: http.post(f"{path}/undrop"),
        "declare": lambda: http.post("/v1/tables", json=declared),
        "publish": publish,
        "live": query(),
        "committed": query(freshness="committed"),
        "version": query(snapshot={"notes": first}),
        "search": lambda: http.post("/v1/search", json={"table": "notes", "query": "tea", "timeout_s": 20}),
        "describe": lambda: http.get(path),
        "list": lambda: http.get("/v1/tables"),
        "dropped": lambda: http.get("/v1/tables?dropped=true"),
        "history": lambda: http.get(f"{path}/history"),
        "row": lambda: http.get(f"{path}/rows/first/history"),
        "changes": lambda: http.get(f"{path}/changes?from={first}"),
        "health": lambda: http.get(f"{path}/health"),
        "of all": lambda: http.get("/v1/health/tables"),
        "alter": lambda: http.patch(path, json={"description": f"d{next(numbers)}"}),
        "hint": lambda: http.post(f"{path}/export-hint"),
        "build": lambda: http.post(f"{path}/build", json={}),
        "status": lambda: http.get("/v1/status"),
        "metrics": lambda: http.get("/metrics"),
    }
    seen: Counter[tuple[str, int, str]] = Counter()
    incidents = Incidents()
    logging.getLogger("frazil").addHandler(incidents)

    async def ask(name: str) -> None:
        for number in range(MOST_ROUNDS):
            if number >= ROUNDS and {key[0] for key in seen if key[1] < 400} >= set(MUST_SUCCEED):
                return
            answer = await asking[name]()
            code = "ok" if answer.status_code < 400 else answer.json()["error"]["code"]
            seen[name, answer.status_code, incidents.last if code == "internal" else code] += 1

    try:
        async with asyncio.timeout(240):
            await asyncio.gather(*(ask(name) for name in asking))
    finally:
        logging.getLogger("frazil").removeHandler(incidents)
    wrong = {key: count for key, count in seen.items() if key[2] not in PROMISED | {"ok"}}
    assert not wrong, "\n".join(map(str, wrong.items()))
    for name in MUST_SUCCEED:
        assert any(key[0] == name and key[1] < 400 for key in seen), f"{name} never succeeded: nothing was tested"
