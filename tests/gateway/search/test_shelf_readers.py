"""Opening a shelf: what is served, with which model, and what is not served whatever its register says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from frazil.embedding import ModelSettings
from frazil.errors import InvalidInput, NotFound, Unavailable
from frazil.gateway.search.shelf_reader import ShelfReader
from frazil.lake.derived import drop_embeddings
from frazil.serving import Profile, Profiles
from frazil.serving.search import DocumentChange, SearchQuery, SearchResult
from tests.gateway.search.place import BY_CLOCK, NOTES, Place, moved_away, until, wrong_canaries
from tests.serving.search.world import document, search

ASK = SearchQuery("parse a date from a string", mode="vector", k=5)


def years(found: SearchResult) -> set[int]:
    return {hit.row["year"] for hit in found.hits}


async def test_the_first_search_waits_for_the_current_generation(place: Place) -> None:
    entry = await place.promote(place.of_year(1), say=False)
    await asyncio.to_thread(place.of_year, 2)  # a candidate that nobody promoted
    async with place.serving() as half:
        first, second = await asyncio.gather(half.of(), half.of())
        assert first is second and await half.of() is first
        assert (first.searchable.table, half.told()["model"]) == ("main.notes", "wordllama")
        found = search(first, ASK)
        assert found.generation == entry.generation and years(found) == {1}
        told = half.told()
        assert (told["state"], told["generation"], told["snapshot_id"]) == ("ok", entry.generation, 107)
        assert told["trouble"] is None and told["fresh_documents"] == 0 and told["age_seconds"] >= 0
        (lease,) = place.shelf().leases()
        assert (lease.reader, lease.serving, lease.generations) == ("one", entry.generation, (entry.generation,))
    assert place.shelf().leases() == [], "it has left"
    with pytest.raises(Unavailable):
        search(first, ASK)
    with pytest.raises(Unavailable):
        await half.tables.of(place.table())


async def test_before_the_first_build_everything_is_fresh(place: Place) -> None:
    async with place.serving() as half:
        served = await half.of()
        assert half.told()["model"] == "wordllama" and half.told()["state"] == "no_artifact"
        served.apply([DocumentChange(3, ("a",), {**document(1), "_id": "a"})], 4)
        assert [hit.key for hit in search(served, ASK).hits] == [("a",)]
        entry = await place.promote(place.of_year(5))
        await half.serves(entry)
        assert await half.of() is served, "the same serving: what is fresh stays"
        await until(lambda: served.fresh.floor == 100, "what is in the artifact is forgotten")


async def test_who_hangs_up_leaves_no_second_one_at_work(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = await place.promote(place.of_year(1), say=False)
    at_work, most = 0, 0
    usual = ShelfReader.follow_register

    def slow(self: ShelfReader, table: Any) -> Any:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.2)
        try:
            return usual(self, table)
        finally:
            at_work -= 1

    monkeypatch.setattr(ShelfReader, "follow_register", slow)
    async with place.serving(BY_CLOCK) as half:
        for _ in range(5):
            asked = asyncio.create_task(half.of())
            await asyncio.sleep(0.05)
            asked.cancel()
            await asyncio.wait({asked})
        assert (await half.of()).status().generation == entry.generation
    assert most == 1 and at_work == 0, "and who closes waits for the one that is at work"


async def test_only_searched_tables(place: Place) -> None:
    await place.declare(name="plain", text=[], search=None)
    async with place.serving() as half:
        with pytest.raises(InvalidInput) as refused:
            await half.of(name="plain")
        assert refused.value.code == "not_searched"


async def test_another_table_of_the_same_name_is_not_answered_from_the_old_artifact(place: Place) -> None:
    old = await place.promote(place.of_year(1))
    async with place.serving(BY_CLOCK) as half:
        await half.serves(old)
        before = await half.of()
        place.lake.drop("main.notes")
        await until(lambda: not half.told(), "the dropped table is served no more")
        drop_embeddings(place.lake, "main.notes")
        await place.declare()
        served = await half.of()
        assert served is not before and served.status().generation is None
        new = await place.promote(place.of_year(2), going_back=True)
        await half.serves(new)
        assert years(search(await half.of(), ASK)) == {2}
        await until(lambda: before._view is None, "the old one is closed")


async def test_a_dropped_table_that_comes_back_is_served_again(place: Place) -> None:
    from frazil.lake.catalog import undrop

    entry = await place.promote(place.of_year(1))
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entry)
        place.lake.drop("main.notes")
        await until(lambda: not half.told(), "it is served no more")
        with pytest.raises(NotFound):
            await half.of()
        undrop(place.lake, "main.notes")
        await half.serves(entry)
        assert years(search(await half.of(), ASK)) == {1}


async def test_vectors_that_users_bring(place: Place) -> None:
    columns = {**NOTES["columns"], "embedding": "list<float>"}
    await place.declare(name="own", columns=columns, search={"vector": "embedding"})
    rows = [{**document(at), "embedding": np.eye(3)[at % 3].tolist()} for at in range(9)]
    async with place.serving() as half:
        served = await half.of(name="own")
        assert served.searchable.model is None and half.told("own")["model"] is None, (
            "nobody knows yet how long they are"
        )
        entry = place.build(rows, name="main.own", model="own")
        await place.promote(entry, name="main.own")
        await until(lambda: half.told("own").get("generation") == entry.generation, "it is served")
        served = await half.of(name="own")
        assert half.told("own")["model"] == "own" and served.searchable.vector == "embedding"
        found = search(served, SearchQuery(vector=np.array([0, 1, 0]), mode="vector", k=3))
        assert {hit.key[0] for hit in found.hits} == {"d1", "d4", "d7"}
        with pytest.raises(InvalidInput) as refused:
            search(served, SearchQuery("tea", mode="vector"))
        assert refused.value.code == "own_vectors"
        assert search(served, SearchQuery("value", mode="text")).generation == entry.generation


async def test_an_entity_is_found_by_its_key(place: Place) -> None:
    columns = {**NOTES["columns"], "id": "long"}
    await place.declare(name="people", kind="entity", key=["id"], columns=columns)
    rows = [{**document(at), "id": at, "year": at} for at in range(6)]
    entry = place.build(rows, name="main.people")
    await place.promote(entry, name="main.people")
    async with place.serving() as half:
        served = await half.of(name="people")
        assert served.searchable.key == ("id",)
        served.apply([DocumentChange(200, (3,), None), DocumentChange(201, (9,), {**rows[1], "id": 9})], 202)
        found = search(served, SearchQuery("a", vector=None, mode="hybrid", k=20))
        assert {hit.key for hit in found.hits} <= {(0,), (1,), (2,), (4,), (5,), (9,)} and found.generation


async def test_a_model_that_is_another_one_here(place: Place) -> None:
    await place.promote(place.of_year(1, version="of another day"))
    async with place.serving() as half:
        with pytest.raises(Unavailable) as refused:
            await half.of()
        assert refused.value.code == "artifact_other_model"
        told = half.told()
        assert told["state"] == "degraded" and "of another day" in told["trouble"]["reason"]
        entry = await place.promote(place.of_year(2, watermark=101))
        await half.until(state="ok", generation=entry.generation)


async def test_a_profile_with_a_shelf_of_its_own(place: Place) -> None:
    fast = Profile("fast", "main.notes", index={"kind": "flat"})
    plain = Profile("plain", "main.notes", k=3)
    for profile in (fast, plain):
        Profiles(place.lake.registry).put(profile)
    table = await place.promote(place.of_year(1))
    own = await place.promote(place.of_year(2, name=fast.shelf), name=fast.shelf)
    async with place.serving() as half:
        await until(lambda: half.told("notes@fast").get("generation") == own.generation, "opened by the start")
        assert search(await half.of(), ASK).generation == table.generation
        assert await half.of(plain) is await half.of()
        served = await half.of(fast)
        assert served.searchable.table == "main.notes@fast" and half.told("notes@fast")["table"] == "notes"
        assert years(search(served, ASK)) == {2}
        Profiles(place.lake.registry).delete("fast")
        await place.promote(own, name=fast.shelf)
        await until(lambda: not half.told("notes@fast"), "it went with its profile")


async def test_the_previous_one_where_the_current_one_cannot_be_opened(place: Place) -> None:
    good = await place.promote(place.of_year(1))
    bad = await place.promote(place.of_year(2, watermark=101))
    with moved_away(place.bucket / "main.notes" / bad.generation / "rows.arrow"):
        async with place.serving() as half:
            served = await half.of()
            assert years(search(served, ASK)) == {1}
            told = await half.until(state="degraded", generation=good.generation)
            assert told["trouble"]["generation"] == bad.generation
    async with place.serving() as half:
        assert years(search(await half.of(), ASK)) == {2}
        assert half.told()["state"] == "ok"


async def test_nothing_can_be_opened_and_then_it_can(place: Place) -> None:
    entry = await place.promote(place.of_year(1))
    with moved_away(place.bucket):
        async with place.serving(BY_CLOCK) as half:
            with pytest.raises(Unavailable):
                await half.of()
            with pytest.raises(Unavailable):
                await half.of()
            assert half.told()["state"] == "degraded"
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entry)


async def test_trouble_does_not_outlive_its_table(place: Place) -> None:
    await place.promote(place.of_year(1, version="of another day"))
    async with place.serving() as half:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await half.of()
        place.lake.drop("main.notes")
        await place.declare()
        assert (await half.of()).status().generation is None
        assert half.told()["state"] == "no_artifact"


async def test_a_column_that_was_added(place: Place) -> None:
    from frazil.lake.catalog import changed_by

    entry = await place.promote(place.of_year(1))
    async with place.serving() as half:
        before = await half.of()
        await half.directory.alter("main.notes", changed_by({"add_columns": {"place": "string"}}))
        served = await half.of()
        assert served is not before and served.status().generation == entry.generation
        found = search(served, ASK)
        assert {hit.row["place"] for hit in found.hits} == {None}
        assert search(before, ASK).generation == entry.generation, "who had it before finishes"


async def test_an_unsound_first_artifact_is_not_served(place: Place) -> None:
    await place.promote(place.of_year(1, spoil=wrong_canaries))
    async with place.serving() as half:
        with pytest.raises(Unavailable, match="not served") as refused:
            await half.of()
        assert refused.value.code == "artifact_canary"
        assert half.told()["trouble"]["code"] == "artifact_canary"


def test_questions_do_not_wait_long_for_a_provider() -> None:
    from frazil.gateway.search.query_models import QueryModels

    slow = ModelSettings(
        provider="openai", url="http://127.0.0.1:9/v1", model="m", dims=4, timeout_seconds=60, retries=20
    )
    model = QueryModels({"far": slow}).open("far")
    settings = model._settings  # type: ignore[attr-defined]
    assert (settings.timeout_seconds, settings.retries) == (5.0, 1) and model.version == "m@1"


def test_http_does_not_wait_for_the_engines() -> None:
    code = (
        "import sys, frazil.gateway.http, frazil.gateway.search.shelf_readers\n"
        "print([name for name in ('faiss', 'tantivy', 'duckdb', 'tokenizers') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout == "[]\n"
