"""One gateway that searches, with real workers, for a whole module: each test takes tables of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import open_lake
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.storage import Warehouse
from tests.gateway.http.harness import running
from tests.gateway.query.conftest import House
from tests.gateway.search.answers.library import Library

NOTES: dict[str, Any] = {
    "columns": {"title": "string", "body": "string", "year": "long", "lang": "string"},
    "text": ["title", "body"],
}


@dataclass
class SearchHouse(House):
    library: Library = field(kw_only=True)

    async def search(self, table: str, query: str | None = None, *, token: str | None = None, **more: Any) -> Any:
        """The answer of a search that must succeed."""
        answer = await self.ask_search(token=token, table=table, query=query, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ids(self, table: str, query: str | None = None, **more: Any) -> list[Any]:
        return [hit["id"] for hit in (await self.search(table, query, **more))["hits"]]

    async def not_found(self, *, token: str | None = None, **asked: Any) -> tuple[int, str]:
        answer = await self.ask_search(token=token, **asked)
        assert answer.status_code != 200, answer.text
        error = answer.json()["error"]
        assert error["message"], error
        return answer.status_code, error["code"]

    async def ask_search(self, *, token: str | None = None, **asked: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.http.post("/v1/search", json=asked, headers=headers)

    async def publish(self, table: str, *events: dict[str, Any]) -> str:
        token: str = (await self.running.accept(list(events), table=table))["token"]
        return token

    async def sql_token(self, table: str, freshness: str = "live") -> str:
        """The token that an answer to SQL has now: that of a search is the same."""
        answer = await self.ask(f"SELECT count(*) FROM {table}", freshness=freshness)
        return str(answer.json()["token"])

    async def notes(self, **more: Any) -> str:
        return await self.table(**{**NOTES, **more})

    def build_and_swap(self, table: str) -> str:
        entry = self.library.build(f"main.{table}")
        self.library.swap(f"main.{table}", entry)
        return entry.generation


def note(id_: str, body: str, *, title: str = "", year: int = 2000, lang: str = "en") -> dict[str, Any]:
    return {"id": id_, "data": {"title": title, "body": body, "year": year, "lang": lang}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: Any) -> AsyncIterator[SearchHouse]:
    folder: Path = tmp_path_factory.mktemp("house")
    lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    bus = MemoryBus(max_bytes=256 << 20)
    library = Library(lake, folder)
    pool = QueryPool(QuerySettings(workers=2), lake.warehouse, readable=[folder / "audit", library.cache])
    async with running(bus, lake, folder, pool=pool, served=library) as started:
        yield SearchHouse(started, bus, lake, folder, library=library)
    lake.close()
