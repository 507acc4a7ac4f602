"""One gateway with real workers for a whole module: each test takes tables of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake, open_lake
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.storage import Warehouse
from tests.gateway.http.harness import Running, commit, running

_numbers = itertools.count(1)


@dataclass
class House:
    """A running gateway, and what stands behind it."""

    running: Running
    bus: EventBus
    lake: Lake
    folder: Path

    @property
    def http(self) -> httpx.AsyncClient:
        return self.running.http

    async def table(self, columns: dict[str, Any], **more: Any) -> str:
        """A new table; its name."""
        name = f"t{next(_numbers)}"
        await self.running.declare(name=name, columns=columns, **more)
        return name

    async def send(self, table: str, *rows: dict[str, Any]) -> str:
        """Publish rows under ids of their own; the token."""
        events = [{"id": f"e{next(_numbers)}", "data": row} for row in rows]
        token: str = (await self.running.accept(events, table=table))["token"]
        return token

    async def commit(self, table: str, *, trim: bool = True) -> int:
        """What the pipeline does, in small; the new snapshot. The gateway finds it when it next looks."""
        name = table if "." in table else f"main.{table}"
        committed = await commit(self.bus, self.lake, name, trim=trim)
        assert committed.snapshot_id is not None
        return committed.snapshot_id

    async def ask(self, sql: str, *, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.http.post("/v1/query", json={"sql": sql, **more}, headers=headers)

    async def rows(self, sql: str, **more: Any) -> list[list[Any]]:
        answer = await self.ask(sql, **more)
        assert answer.status_code == 200, answer.text
        found: list[list[Any]] = answer.json()["rows"]
        return found

    async def refused(self, sql: str, **more: Any) -> tuple[int, str]:
        answer = await self.ask(sql, **more)
        assert answer.status_code != 200, answer.text
        return answer.status_code, answer.json()["error"]["code"]

    async def token(self, *grants: Any, **more: Any) -> str:
        """The secret of a new token with these grants."""
        answer = await self.http.post("/v1/tokens", json={"name": "a test", "grants": list(grants), **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: Any) -> AsyncIterator[House]:
    folder: Path = tmp_path_factory.mktemp("house")
    lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    bus = MemoryBus(max_bytes=256 << 20)
    pool = QueryPool(QuerySettings(workers=2), lake.warehouse, readable=[folder / "audit"])
    async with running(bus, lake, folder, pool=pool) as started:
        yield House(started, bus, lake, folder)
    lake.close()
