"""Tables over HTTP: declare, list, describe, alter, drop and bring back, seen by every gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import ORDERS, Running, commit, event, eventually, on_the_bus, running, stored_ids

FULL: dict[str, Any] = {
    "name": "raw.full",
    "columns": {
        "email": {"type": "string", "sensitivity": "pii", "description": "who"},
        "at": "timestamp",
        "price": "decimal(12,2)",
        "tags": "list<string>",
    },
    "partition": ["day(at)", "bucket(4,email)"],
    "unknown_fields": "keep",
    "description": "all of it",
    "owner": "team",
    "tags": ["a", "b"],
    "freshness_target_seconds": 5,
}


async def test_declaring_once_again_and_differently(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        made = await gateway.http.post("/v1/tables", json=ORDERS)
        again = await gateway.http.post("/v1/tables", json=ORDERS)
        assert (made.status_code, again.status_code) == (201, 200)
        assert made.json()["columns"] == ORDERS["columns"]
        other = await gateway.http.post("/v1/tables", json={**ORDERS, "columns": {"item": "long"}, "owner": "somebody"})
        assert (other.status_code, other.json()["error"]["code"]) == (409, "table_exists")
        assert other.json()["error"]["details"] == {
            "owner": {"existing": "", "declared": "somebody"},
            "columns.item": {"existing": "string", "declared": "long"},
            "columns.amount": {"existing": "long", "declared": None},
        }
        assert len(await bus.names()) == 1


async def test_many_declare_the_same_at_once(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as one, running(bus, lake, tmp_path) as other:
        answers = await asyncio.gather(*(gateway.http.post("/v1/tables", json=ORDERS) for gateway in [one, other] * 3))
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
        assert len(await bus.names()) == 1, "the streams of those who came late are gone"
        await asyncio.gather(one.accept([event("a")]), other.accept([event("b")]))
        assert sorted((await on_the_bus(bus, lake))["_id"].to_pylist()) == ["a", "b"]


async def test_describe_tells_everything(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.http.post("/v1/tables", json=FULL)
    told = (await gateway.http.get("/v1/tables/raw.full")).json()
    assert {key: told["declaration"][key] for key in FULL} == FULL
    assert [column["name"] for column in told["schema"]][-5:] == ["email", "at", "price", "tags", "_extra"]
    assert told["rows"] == told["files"] == 0
    assert told["snapshots"] == []
    assert told["freshness"] == {"target_seconds": 5, "age_seconds": 0.0, "met": True}
    receipt = await gateway.accept([event("a"), event("b")])
    before = (await gateway.http.get("/v1/tables/orders")).json()
    assert before["lag"]["events"] == 2
    table = await commit(memory_bus, lake)
    after = (await gateway.http.get("/v1/tables/orders")).json()
    assert (after["rows"], after["files"], after["lag"]) == (2, 1, {"events": 0, "seconds": 0.0})
    assert after["bytes"] > 0
    assert after["snapshot_id"] == table.snapshot_id == after["snapshots"][0]["snapshot_id"]
    assert after["metadata_location"] == table.metadata_location
    assert after["watermark_token"] == after["head_token"]
    visible = await gateway.http.get("/v1/visibility", params={"token": after["watermark_token"]})
    assert visible.json()["visible"] is True
    assert receipt["token"] != before["watermark_token"]


async def test_listing(gateway: Running) -> None:
    await gateway.declare(name="raw.clicks")
    listed = (await gateway.http.get("/v1/tables")).json()["tables"]
    assert [table["name"] for table in listed] == ["orders", "raw.clicks"]


async def test_altering(gateway: Running, lake: Lake, memory_bus: MemoryBus) -> None:
    await gateway.declare(name="narrow", columns={"n": "int"})
    change = {"add_columns": {"note": "string"}, "widen": {"n": "long"}, "owner": "me", "tags": ["x"]}
    altered = await gateway.http.patch("/v1/tables/narrow", json=change)
    assert altered.status_code == 200, altered.text
    assert altered.json()["columns"] == {"n": "long", "note": "string"}
    assert (altered.json()["owner"], altered.json()["tags"]) == ("me", ["x"])
    cleared = await gateway.http.patch("/v1/tables/narrow", json={"owner": None, "tags": "one"})
    assert (cleared.json()["owner"], cleared.json()["tags"]) == ("", ["one"])
    await gateway.accept([{"id": "a", "data": {"n": 2**40, "note": "hi"}}], table="narrow")
    assert (await on_the_bus(memory_bus, lake, "main.narrow"))["n"].to_pylist() == [2**40]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"widen": {"amount": "int"}}, 409, "cannot_widen"),
        ({"widen": {"absent": "long"}}, 404, "column_not_found"),
        ({"add_columns": {"item": "long"}}, 409, "column_exists"),
        ({"add_columns": {"Bad Name": "long"}}, 422, "bad_column_name"),
        ({"add_columns": ["x"]}, 422, "bad_columns"),
        ({"owner": 5}, 422, "bad_declaration"),
        ({"tags": [1]}, 422, "bad_declaration"),
        ({"columns": {}}, 422, "unknown_field"),
        ({}, 422, "bad_alteration"),
        ([], 422, "bad_alteration"),
    ],
)
async def test_alterations_that_cannot_be(gateway: Running, change: Any, status: int, code: str) -> None:
    answer = await gateway.http.patch("/v1/tables/orders", json=change)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("kind", ["log", "entity"])
async def test_a_table_can_be_searched_from_now_on(gateway: Running, kind: str) -> None:
    key = {"key": ["id"]} if kind == "entity" else {}
    await gateway.http.post("/v1/tables", json={"name": "pages", "kind": kind, "columns": {"id": "long"}, **key})
    change = {"add_columns": {"body": "string"}, "text": ["body"], "search": {"chunk": {"size": 200}}}
    altered = await gateway.http.patch("/v1/tables/pages", json=change)
    assert altered.status_code == 200, altered.text
    told = (await gateway.http.get("/v1/tables/pages")).json()["declaration"]
    assert (
        told["text"] == ["body"] and told["search"]["chunk"]["size"] == 200 and told["search"]["model"] == "wordllama"
    )
    for wrong in ({"text": ["missing"]}, {"text": ["id"]}, {"search": {"model": "?"}}, {"text": "body body"}):
        assert (await gateway.http.patch("/v1/tables/pages", json=wrong)).status_code == 422, wrong
    assert (await gateway.http.get("/v1/tables/pages")).json()["declaration"] == told
    no_more = await gateway.http.patch("/v1/tables/pages", json={"text": [], "search": None})
    assert no_more.status_code == 200, no_more.text
    assert (await gateway.http.get("/v1/tables/pages")).json()["declaration"]["text"] == []


async def test_events_after_another_gateway_altered_the_table(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(memory_bus, lake, tmp_path) as one, running(memory_bus, lake, tmp_path) as other:
        await one.declare()
        await other.accept([event("a")])
        await one.http.patch("/v1/tables/orders", json={"add_columns": {"note": "string"}})

        async def is_known() -> bool:
            return (await other.send([{"id": "b", "data": {"note": "seen"}}])).status_code == 202

        await eventually(is_known)
        assert (await on_the_bus(memory_bus, lake))["note"].to_pylist() == [None, "seen"]


async def test_dropping_and_bringing_back(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        await gateway.accept([event("a")])
        await commit(bus, lake)
        await gateway.accept([event("b")])
        assert (await gateway.http.delete("/v1/tables/orders")).status_code == 200
        for answer in (
            await gateway.http.get("/v1/tables/orders"),
            await gateway.send([event("c")]),
            await gateway.http.delete("/v1/tables/orders"),
            await gateway.http.patch("/v1/tables/orders", json={"owner": "x"}),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "table_not_found")
        dropped = (await gateway.http.get("/v1/tables?dropped=true")).json()["tables"]
        assert dropped == [{"name": "orders", "times": 1}]
        assert (await gateway.http.post("/v1/tables/orders/undrop")).status_code == 200
        receipt = await gateway.accept([event("a"), event("b"), event("c")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 2)
        await commit(bus, lake)
        assert stored_ids(lake) == ["a", "b", "c"]
        assert (await gateway.http.post("/v1/tables/orders/undrop")).status_code == 404


async def test_a_new_table_under_the_name_of_a_dropped_one_is_empty(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(memory_bus, lake, tmp_path) as one, running(memory_bus, lake, tmp_path) as other:
        await one.declare()
        await one.accept([event("a")])
        await other.accept([event("b")])
        await one.http.delete("/v1/tables/orders")
        await one.declare()
        await other.gateway.directory.refresh()
        receipts = [await other.accept([event("a")]), await one.accept([event("a"), event("b")])]
        assert [receipt["accepted"] for receipt in receipts] == [1, 1]
        assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["a", "b"]
        conflict = await one.http.post("/v1/tables/orders/undrop")
        assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "table_exists")


@pytest.mark.parametrize("name", ["Bad", "a.b.c", "dropped.x", "a b", "x" * 64])
async def test_names_that_cannot_be(gateway: Running, name: str) -> None:
    for answer in (await gateway.http.get(f"/v1/tables/{name}"), await gateway.send([event("a")], table=name)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_table_name")


async def test_declarations_that_cannot_be(gateway: Running) -> None:
    for body in (b"", b"[", b"[]", b"1", b'{"columns": {}}', b'{"name": "x", "columns": {"a": "strng"}}'):
        answer = await gateway.http.post("/v1/tables", content=body)
        assert answer.status_code == 422, body
        assert answer.json()["error"]["message"]


async def test_a_foreign_table_in_the_catalog_is_left_alone(gateway: Running, lake: Lake) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    lake.catalog.create_table("main.foreign", Schema(NestedField(1, "x", LongType())))
    listed = (await gateway.http.get("/v1/tables")).json()["tables"]
    assert [table["name"] for table in listed] == ["orders"]
    answer = await gateway.send([event("a")], table="foreign")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "foreign_table")
    assert (await gateway.http.get("/v1/health")).json()["parts"]["lake"]["status"] == "ok"
