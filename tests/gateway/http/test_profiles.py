"""Profiles over HTTP: checked when they are set, shown to who may read their table, gone with their artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from frazil.access import parse_grants
from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake
from frazil.serving.sql import QueryPool, QuerySettings
from tests.gateway.http.harness import ORDERS, Running, running
from tests.gateway.search.place import BY_WORD, Place, until


@pytest.fixture
async def shop(lake: Lake, memory_bus: MemoryBus, tmp_path: Path) -> AsyncIterator[tuple[Running, Place]]:
    """A gateway with query workers that judge filters, a searched table and one that is not."""
    place = Place(tmp_path, lake, memory_bus)
    await place.declare()
    pool = QueryPool(QuerySettings(workers=1), lake.warehouse)
    async with running(memory_bus, lake, tmp_path, pool=pool, pace=BY_WORD) as gateway:
        await gateway.http.post("/v1/tables", json=ORDERS)
        yield gateway, place


async def test_a_profile_is_set_shown_changed_and_deleted(shop: tuple[Running, Place]) -> None:
    gateway, place = shop
    body = {"table": "notes", "filter": "year > 2000", "mode": "hybrid", "k": 5, "columns": ["title", "_id"]}
    made = await gateway.http.put("/v1/profiles/recent", json=body)
    assert made.status_code == 201, made.text
    expected = {"name": "recent", "model": None, "index": None, **body}
    assert made.json() == expected
    assert (await gateway.http.get("/v1/profiles/recent")).json() == expected
    assert (await gateway.http.get("/v1/profiles")).json() == {"profiles": [expected]}
    assert (await gateway.http.get("/v1/profiles?table=orders")).json() == {"profiles": []}
    own = await gateway.http.put("/v1/profiles/recent", json={"table": "notes", "index": {"kind": "flat"}})
    assert own.status_code == 200 and own.json()["filter"] is None
    # It has a shelf of its own now, which goes with it.
    entry = await place.promote(place.of_year(3, name="main.notes@recent"), name="main.notes@recent")
    served = gateway.gateway.served
    assert served is not None
    await until(lambda: [one["generation"] for one in served.status()] == [entry.generation], "it is served")
    back = await gateway.http.put("/v1/profiles/recent", json={"table": "notes"})
    assert back.status_code == 200
    assert place.shelf("main.notes@recent").register().entries == ()
    await until(lambda: served.status() == [], "it is served no more")
    await gateway.http.put("/v1/profiles/recent", json={"table": "notes", "index": {"kind": "flat"}})
    await place.promote(place.of_year(3, name="main.notes@recent"), name="main.notes@recent")
    gone = await gateway.http.delete("/v1/profiles/recent")
    assert gone.json() == {"name": "recent", "deleted": True}
    assert place.shelf("main.notes@recent").register().entries == ()
    assert not [path for path in (place.bucket / "main.notes@recent").rglob("*") if path.is_file()]
    for told in (await gateway.http.get("/v1/profiles/recent"), await gateway.http.delete("/v1/profiles/recent")):
        assert (told.status_code, told.json()["error"]["code"]) == (404, "profile_not_found")
    assert {one["kind"] for one in (await gateway.http.get("/v1/journal")).json()["entries"]} >= {
        "profile_set",
        "profile_deleted",
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"table": "none"}, 404, "table_not_found"),
        ({"table": "orders"}, 422, "bad_profile"),
        ({"table": "notes", "columns": ["titel"]}, 422, "bad_profile"),
        ({"table": "notes", "filter": "no_such_column = 1"}, 422, None),
        ({"table": "notes", "filter": "1=1; DROP TABLE x"}, 422, None),
        ({"table": "notes", "model": "unheard_of"}, 422, "unknown_model"),
        ({"table": "notes", "model": "minilm"}, 409, "model_not_embedded"),
        ({"table": "notes", "model": "own"}, 422, "bad_profile"),
        ({"table": "notes", "index": {"kind": "magic"}}, 422, None),
        ({"table": "notes", "kk": 3}, 422, "bad_profile"),
        ({}, 422, "bad_profile"),
        ([], 422, "bad_profile"),
    ],
)
async def test_what_no_search_could_do_is_refused(
    shop: tuple[Running, Place], body: Any, status: int, code: str | None
) -> None:
    gateway, _ = shop
    told = await gateway.http.put("/v1/profiles/p", json=body)
    assert told.status_code == status, told.text
    assert code is None or told.json()["error"]["code"] == code
    assert (await gateway.http.get("/v1/profiles")).json() == {"profiles": []}


async def test_a_bad_name(shop: tuple[Running, Place]) -> None:
    told = await shop[0].http.put("/v1/profiles/Bad%20Name", json={"table": "notes"})
    assert told.status_code == 422 and told.json()["error"]["code"] == "bad_profile"


async def test_profiles_are_shown_to_who_may_read_their_table(shop: tuple[Running, Place]) -> None:
    gateway, _ = shop
    await gateway.http.put("/v1/profiles/p", json={"table": "notes", "k": 3})
    seen = {}
    words: dict[str, list[Any]] = {
        "reader": ["read:notes"],
        "of some": [{"scope": "read:notes", "where": "year = 1"}],
        "writer": ["ingest:notes"],
        "another": ["read:orders"],
    }
    for name, grants in words.items():
        _, secret = gateway.gateway.access.tokens.create(name, parse_grants(grants), created_by="admin")
        headers = {"authorization": f"Bearer {secret}"}
        listed = (await gateway.http.get("/v1/profiles", headers=headers)).json()["profiles"]
        shown = await gateway.http.get("/v1/profiles/p", headers=headers)
        put = await gateway.http.put("/v1/profiles/q", json={"table": "notes"}, headers=headers)
        gone = await gateway.http.delete("/v1/profiles/p", headers=headers)
        assert (put.status_code, gone.status_code) == (403, 403)
        seen[name] = (len(listed), shown.status_code)
        if shown.status_code == 404:
            none = await gateway.http.get("/v1/profiles/x", headers=headers)
            assert shown.json()["error"]["message"] == none.json()["error"]["message"].replace("'x'", "'p'")
    assert seen == {"reader": (1, 200), "of some": (1, 200), "writer": (0, 404), "another": (0, 404)}
