"""Searching what was published: at once, after its commit, from an artifact, and across a swap."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.search.answers.conftest import SearchHouse, note

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_note_is_found_as_soon_as_it_has_its_receipt(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, note("a", "the ferry leaves the harbour at noon", title="Ferries", year=2021))
    token = await house.publish(table, note("b", "green tea is drunk without milk", title="Tea", year=2022))
    answer = await house.search(table, "tea", min_token=token)
    hit = answer["hits"][0]
    assert (hit["id"], hit["fresh"], hit["row"]["year"], hit["row"]["_op"]) == ("b", True, 2022, "insert")
    assert answer["generation"] is None and answer["fresh_rows"] == 2 and answer["mode"] == "hybrid"
    assert answer["token"] == await house.sql_token(table)
    assert answer["freshness"] == "live" and answer["elapsed_ms"] > 0
    marked = [hit["snippet"]["text"][a:b].lower() for a, b in hit["snippet"]["marks"]]
    assert marked == ["tea"] and hit["snippet"]["column"] in ("title", "body")
    assert hit["vector_score"] > 0.3 and hit["text_score"] > 0
    assert await house.ids(table, "boats", mode="vector", k=1) == ["a"]


async def test_what_is_only_received_is_not_committed(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, note("a", "a lantern in the storm"))
    await house.commit(table)
    second = await house.publish(table, note("b", "another lantern"))
    assert sorted(await house.ids(table, "lantern")) == ["a", "b"]
    committed = await house.search(table, "lantern", freshness="committed")
    assert [hit["id"] for hit in committed["hits"]] == ["a"]
    assert committed["token"] == await house.sql_token(table, "committed") != await house.sql_token(table)
    assert await house.not_found(
        table=table, query="lantern", freshness="committed", min_token=second, timeout_s=0.3
    ) == (504, "visibility_timeout")
    waiting = asyncio.create_task(
        house.search(table, "lantern", freshness="committed", min_token=second, timeout_s=120)
    )
    await asyncio.sleep(0.1)
    await house.commit(table)
    answer = await waiting
    assert sorted(hit["id"] for hit in answer["hits"]) == ["a", "b"]
    assert answer["token"] == await house.sql_token(table, "committed")


async def test_an_artifact_and_what_came_since(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, *(note(f"n{i}", f"harbour number {i}", year=i) for i in range(50)))
    await house.commit(table)
    generation = house.build_and_swap(table)
    await house.publish(table, note("new", "the newest harbour"))
    answer = await house.search(table, "harbour", k=100)
    assert answer["generation"] == generation and answer["fresh_rows"] == 1
    assert answer["token"] == await house.sql_token(table)
    assert answer["snapshot_id"] == house.lake.table(f"main.{table}").snapshot_id
    assert {hit["id"] for hit in answer["hits"] if hit["fresh"]} == {"new"} and len(answer["hits"]) == 51
    await house.commit(table)
    again = await house.search(table, "harbour", k=100)
    assert len(again["hits"]) == 51 and again["generation"] == generation
    assert house.build_and_swap(table) != generation
    last = await house.search(table, "harbour", k=100)
    assert len(last["hits"]) == 51 and last["fresh_rows"] == 0 and last["token"] == again["token"]


async def test_an_entity_shows_its_newest_version_only(house: SearchHouse) -> None:
    columns = {"k": "string", "body": "string", "n": "long"}
    table = await house.table(columns, kind="entity", key=["k"], text=["body"])

    async def put(key: str, body: str, op: str = "upsert") -> str:
        data = {"k": key} if op == "delete" else {"k": key, "body": body}
        return await house.publish(table, {"op": op, "data": data})

    await put("x", "green tea")
    await put("y", "black coffee")
    assert await house.ids(table, "tea", mode="text") == ["x"]
    await house.commit(f"{table}__history")
    house.build_and_swap(table)
    await put("x", "orange juice")
    assert await house.ids(table, "tea", mode="text") == []
    assert await house.ids(table, "tea", mode="text", freshness="committed") == ["x"]
    answer = await house.search(table, "juice", mode="text")
    assert [hit["key"] for hit in answer["hits"]] == [{"k": "x"}]
    await put("x", "", "delete")
    assert await house.ids(table, "tea juice coffee", mode="text", k=9) == ["y"]
    await house.commit(f"{table}__history")
    assert await house.ids(table, "tea juice coffee", mode="text", k=9, freshness="committed") == ["y"]
    house.build_and_swap(table)
    assert await house.ids(table, "tea juice coffee", mode="text", k=9) == ["y"]


async def test_expired_snapshots_between_the_artifact_and_now(
    house: SearchHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await house.notes()
    await house.publish(table, note("a", "the harbour"))
    await house.commit(table)
    house.build_and_swap(table)
    for number in range(3):
        await house.publish(table, note(f"n{number}", "a harbour"))
        await house.commit(table)
    iceberg = house.lake.catalog.load_table(f"main.{table}")
    oldest = [snapshot.snapshot_id for snapshot in iceberg.metadata.snapshots[:-1]]
    iceberg.maintenance.expire_snapshots().by_ids(oldest).commit()
    await house.running.gateway.directory.refresh()
    # Sums tell that nothing but events came: the ids are not looked at, of which there may be millions.
    monkeypatch.setattr("frazil.gateway.search.changed_documents._MOST_COMPARED", 0)
    for freshness in ("live", "committed"):
        assert sorted(await house.ids(table, "harbour", freshness=freshness)) == ["a", "n0", "n1", "n2"]
