"""What a token may not read, no search tells: not by hits, scores, counts, snippets, pages or errors."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.serving import Profile, Profiles
from tests.gateway.search.answers.conftest import SearchHouse, note

pytestmark = pytest.mark.asyncio(loop_scope="module")
MODES = ("text", "vector", "hybrid")


async def library(house: SearchHouse) -> str:
    """Ten notes in an artifact and two that are fresh; those in `sv` are not for everybody."""
    table = await house.notes()
    await house.publish(
        table,
        *(note(f"en{i}", f"the harbour of town {i}", title=f"Town {i}", year=2000 + i) for i in range(5)),
        *(note(f"sv{i}", f"the secret harbour {i}", title=f"Merger {i}", lang="sv", year=2000 + i) for i in range(5)),
    )
    await house.commit(table)
    house.build_and_swap(table)
    await house.publish(table, note("en9", "a fresh harbour", title="Nine"))
    await house.publish(table, note("sv9", "a fresh secret harbour", title="Merger", lang="sv"))
    return table


async def test_without_a_grant_there_is_no_such_table(house: SearchHouse) -> None:
    table = await library(house)
    stranger = await house.token("read:something_else", "sql")
    hidden = await house.ask_search(token=stranger, table=table, query="harbour")
    absent = await house.ask_search(token=stranger, table="absent", query="harbour")
    sql = await house.ask(f"SELECT * FROM {table}", token=stranger)
    assert hidden.status_code == absent.status_code == sql.status_code == 404
    assert hidden.json() == sql.json()
    assert hidden.text == absent.text.replace("absent", table)
    Profiles(house.lake.registry).put(Profile("of_hidden", f"main.{table}"))
    no_profile = await house.ask_search(token=stranger, profile="no_such_one", query="harbour")
    of_hidden = await house.ask_search(token=stranger, profile="of_hidden", query="harbour")
    assert of_hidden.status_code == 404
    assert of_hidden.text == no_profile.text.replace("no_such_one", "of_hidden")
    reader = await house.token(f"read:{table}")
    assert (await house.search(table, "harbour", token=reader))["hits"], "who may read may search"


@pytest.mark.parametrize("mode", MODES)
async def test_hidden_rows_are_not_found_counted_or_ranked(house: SearchHouse, mode: str) -> None:
    table = await library(house)
    token = await house.token({"scope": f"read:{table}", "where": "lang = 'en' -- only these"})
    for more in (
        {},
        {"filter": "true"},
        {"filter": "lang = 'sv' OR true"},
        {"filter": "lang <> 'en'"},
        {"filter": "1 = 1 -- )"},
        {"offset": 3},
        {"freshness": "committed"},
    ):
        answer = await house.search(table, "secret merger harbour", token=token, mode=mode, k=100, **more)
        assert all(hit["id"].startswith("en") for hit in answer["hits"]), more
        assert answer["fresh_rows"] <= 1 and "Merger" not in str(answer["hits"])
        assert len(answer["hits"]) <= 6
    everything = await house.search(table, "harbour", token=token, mode=mode, k=100)
    assert len(everything["hits"]) == 6 and everything["fresh_rows"] == 1
    assert (await house.search(table, "harbour", token=token, mode=mode, filter="lang = 'sv'"))["hits"] == []


async def test_scores_do_not_count_the_words_of_hidden_rows(house: SearchHouse) -> None:
    table = await library(house)
    token = await house.token({"scope": f"read:{table}", "where": "lang = 'en'"})

    async def told(**more: Any) -> list[Any]:
        answer = await house.search(table, "harbour", token=token, k=50, **more)
        return [{name: hit[name] for name in hit if name != "row"} for hit in answer["hits"]]

    before = [await told(mode=mode) for mode in MODES]
    await house.publish(table, *(note(f"sw{i}", "harbour harbour harbour", lang="sv") for i in range(20)))
    assert [await told(mode=mode) for mode in MODES] == before
    await house.commit(table)
    house.build_and_swap(table)
    after = [await told(mode=mode) for mode in MODES]
    assert [[hit["score"] for hit in hits] for hits in after] == [[hit["score"] for hit in hits] for hits in before]
    assert all(hit["text_score"] is None for hits in after for hit in hits)
    assert await told(mode="text", min_score=1 / 62) == after[0][:2]


async def test_errors_tell_nothing_of_hidden_rows(house: SearchHouse) -> None:
    table = await library(house)
    token = await house.token({"scope": f"read:{table}", "where": "lang = 'en'"})
    # Would fail on every hidden row, were it evaluated there.
    filter_ = "CAST(CASE WHEN lang = 'sv' THEN title ELSE '1' END AS INT) = 1"
    assert len((await house.search(table, "harbour", token=token, filter=filter_, k=50))["hits"]) == 6
    answer = await house.ask_search(token=token, table=table, query="harbour", filter="CAST(title AS INT) = 1")
    assert answer.status_code == 422 and "Town" not in answer.text and "Merger" not in answer.text


async def test_masked_columns_are_neither_searched_nor_shown(house: SearchHouse) -> None:
    table = await library(house)
    token = await house.token("sql", {"scope": f"read:{table}", "mask": {"title": "hash", "lang": "redact"}})
    for mode in ("vector", "hybrid"):
        assert await house.not_found(token=token, table=table, query="town", mode=mode) == (422, "masked_text")
    assert await house.not_found(token=token, table=table, query="town", fields=["title"]) == (422, "masked_text")
    assert await house.ids(table, "merger", token=token) == [], "a word of the masked column only"
    assert await house.ids(table, "title:merger", token=token, k=50) == []
    answer = await house.search(table, "secret", token=token, k=50)
    assert answer["mode"] == "text" and len(answer["hits"]) == 6
    in_sql = dict(await house.rows(f"SELECT _id, title FROM {table}", token=token))
    for hit in answer["hits"]:
        assert hit["row"]["title"] == in_sql[hit["id"]] and len(hit["row"]["title"]) == 64
        assert hit["row"]["lang"] == "***" and "chunk" not in hit
        assert hit["snippet"]["column"] == "body" and "Merger" not in hit["snippet"]["text"]
    assert await house.ids(table, "harbour", token=token, filter="title LIKE 'Merger%'") == []
    assert await house.ids(table, "harbour", token=token, filter="lang = 'sv'") == []
    assert len(await house.ids(table, "harbour", token=token, filter="lang = '***'", k=50)) == 12
    both = await house.token({"scope": f"read:{table}", "mask": ["title", "body"]})
    for any_mode in (*MODES, None):
        assert await house.not_found(token=both, table=table, query="harbour", mode=any_mode) == (422, "masked_text")


async def test_what_one_token_found_by_a_hash_no_other_finds(house: SearchHouse) -> None:
    table = await library(house)
    grant = {"scope": f"read:{table}", "mask": {"title": "hash"}}
    one, other = [await house.token("sql", grant) for _ in range(2)]
    hit = (await house.search(table, "secret", token=one))["hits"][0]
    by_hash = f"title = '{hit['row']['title']}'"
    # The second time from what is kept of the first.
    for _ in range(2):
        assert hit["id"] in await house.ids(table, "secret", token=one, filter=by_hash, k=50)
        assert await house.ids(table, "secret", token=other, filter=by_hash, k=50) == []
    named = {"scope": f"read:{table}", "mask": {"title": "hash(titles)"}}
    one, other = [await house.token("sql", named) for _ in range(2)]
    titles = [(await house.search(table, "secret", token=token))["hits"][0]["row"]["title"] for token in (one, other)]
    assert titles[0] == titles[1] != hit["row"]["title"]


async def test_a_masked_key_is_masked_in_the_hits_too(house: SearchHouse) -> None:
    table = await library(house)
    token = await house.token(
        {"scope": f"read:{table}", "mask": {"_id": "hash", "year": "null"}, "where": "year < 2004"}
    )
    answer = await house.search(table, "harbour", token=token, k=50, columns=["year", "title"])
    assert len(answer["hits"]) == 10 and all(len(hit["id"]) == 64 for hit in answer["hits"])
    assert all(hit["row"] == {"year": None, "title": hit["row"]["title"]} for hit in answer["hits"])
    assert "en1" not in str(answer["hits"])
    assert await house.ids(table, "harbour", token=token, filter="year IS NOT NULL") == []


async def test_the_filter_of_a_profile_cannot_be_removed(house: SearchHouse) -> None:
    table = await library(house)
    name = f"swedish-{table}"
    Profiles(house.lake.registry).put(
        Profile(name, f"main.{table}", filter="lang = 'sv' -- ours", mode="text", k=3, columns=("title",))
    )
    answer = (await house.ask_search(profile=name, query="harbour")).json()
    assert len(answer["hits"]) == 3 and answer["mode"] == "text"
    assert all(hit["id"].startswith("sv") and [*hit["row"]] == ["title"] for hit in answer["hits"])
    wide = (
        await house.ask_search(profile=name, query="harbour", filter="true OR lang = 'en'", k=50, columns=[])
    ).json()
    assert len(wide["hits"]) == 6 and all(hit["row"] == {} for hit in wide["hits"])
    assert (await house.ask_search(profile=name, query="harbour", filter="lang = 'en'")).json()["hits"] == []
    for attack in ("true) OR (true", "true OR lang = 'en'; --", "lang = 'en' UNION SELECT true"):
        assert (await house.not_found(profile=name, query="harbour", filter=attack))[0] == 422
    assert await house.not_found(profile=name, table="other", query="x") == (422, "bad_search")
