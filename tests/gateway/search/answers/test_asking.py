"""What is asked: bad input, pages and shapes of answers, limits, and what happens when a part does not answer."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from frazil.embedding import Vectors, open_model
from frazil.errors import Unavailable
from frazil.gateway.search import searches
from tests.gateway.search.answers.conftest import SearchHouse, note

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (422, "bad_search")),
        ({"query": "x"}, (422, "bad_search")),
        ({"table": "T"}, (422, "bad_search")),
        ({"table": 5, "query": "x"}, (422, "bad_search")),
        ({"table": "T", "query": ""}, (422, "bad_search")),
        ({"table": "T", "query": "a\0b"}, (422, "bad_search")),
        ({"table": "T", "query": "x" * 10_001}, (413, "query_too_large")),
        ({"table": "T", "query": "x", "modes": "text"}, (422, "unknown_field")),
        ({"table": "T", "query": "x", "mode": "fuzzy"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "k": 0}, (422, "bad_search")),
        ({"table": "T", "query": "x", "k": 1001}, (422, "bad_search")),
        ({"table": "T", "query": "x", "k": True}, (422, "bad_search")),
        ({"table": "T", "query": "x", "offset": -1}, (422, "bad_search")),
        ({"table": "T", "query": "x", "offset": 9999, "k": 1000}, (422, "bad_search")),
        ({"table": "T", "query": "x", "min_score": "high"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "weights": {"words": 1}}, (422, "bad_search")),
        ({"table": "T", "query": "x", "weights": {"vector": 0, "text": 0}}, (422, "bad_search")),
        ({"table": "T", "query": "x", "weights": {"vector": -1}}, (422, "bad_search")),
        ({"table": "T", "query": "x", "fields": ["year"]}, (422, "bad_weights")),
        ({"table": "T", "query": "x", "fields": {"title": "much"}}, (422, "bad_search")),
        ({"table": "T", "query": "x", "columns": ["nope"]}, (422, "unknown_column")),
        ({"table": "T", "query": "x", "columns": "title"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "filter": "nope = 1"}, (422, "bad_sql")),
        ({"table": "T", "query": "x", "filter": "year"}, (422, "invalid_input")),
        ({"table": "T", "query": "x", "filter": ""}, (422, "bad_filter")),
        ({"table": "T", "query": "x", "filter": "(SELECT true)"}, (422, "sql_refused")),
        ({"table": "T", "query": "x", "filter": "read_text('/etc/passwd') = ''"}, (422, "function_not_allowed")),
        ({"table": "T", "query": "x", "group": "chunk", "mode": "text"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "group": "rows"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "snippet": -1}, (422, "bad_search")),
        ({"table": "T", "query": "x", "freshness": "stale"}, (422, "bad_search")),
        ({"table": "T", "query": "x", "min_token": "no token"}, (422, "bad_token")),
        ({"table": "T", "query": "x", "timeout_s": 0}, (422, "bad_search")),
        ({"table": "T", "query": "x", "when_behind": "panic"}, (422, "bad_search")),
        ({"table": "T", "vector": [1, 2, 3]}, (422, "wrong_dimension")),
        ({"table": "T", "vector": []}, (422, "bad_vector")),
        ({"table": "T", "vector": [0.0] * 256}, (422, "bad_vector")),
        ({"table": "T", "vector": ["a"]}, (422, "bad_vector")),
        ({"table": "T", "vector": [10**400] + [0.5] * 255}, (422, "bad_vector")),
        ({"table": "T", "vector": [-1e39] + [0.5] * 255}, (422, "bad_vector")),
        ({"table": "T", "query": "a", "min_score": 10**400}, (422, "bad_search")),
        ({"table": "T", "vector": [1.0] * 256, "mode": "text"}, (422, "bad_search")),
        ({"table": "absent", "query": "x"}, (404, "table_not_found")),
        ({"profile": "absent", "query": "x"}, (404, "profile_not_found")),
        ({"table": "T__history", "query": "x"}, (404, "table_not_found")),
    ],
)
async def test_bad_input_is_refused_in_plain_words(
    house: SearchHouse, asked: dict[str, Any], expected: tuple[int, str]
) -> None:
    table = await _table(house)
    named = {**asked, **({"table": asked["table"].replace("T", table)} if isinstance(asked.get("table"), str) else {})}
    assert await house.not_found(**named) == expected


_known: dict[int, str] = {}


async def _table(house: SearchHouse) -> str:
    if id(house) not in _known:
        _known[id(house)] = await house.notes()
        await house.publish(_known[id(house)], note("a", "the harbour"))
    return _known[id(house)]


async def test_a_table_without_text_is_not_searched(house: SearchHouse) -> None:
    table = await house.table({"a": "string"})
    assert await house.not_found(table=table, query="x") == (409, "not_searched")


async def test_bodies_that_are_no_search(house: SearchHouse) -> None:
    for body in (b"", b"[]", b"{", b'"x"'):
        answer = await house.http.post("/v1/search", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
    assert (await house.http.get("/v1/search")).status_code == 405
    assert (await house.http.post("/v1/search", headers={"authorization": "Bearer no"}, json={})).status_code == 401


async def test_values_are_those_of_sql(house: SearchHouse) -> None:
    columns = {
        "body": "string",
        "at": "timestamp",
        "day": "date",
        "price": "decimal(12,2)",
        "tags": "list<string>",
        "ratio": "double",
        "small": "float",
        "raw": "binary",
        "yes": "bool",
        "more": "json",
        "deep": "struct<a:int,b:list<date>>",
    }
    table = await house.table(columns, text=["body"])
    data = {
        "body": "harbour",
        "at": "2026-11-01T10:00:00.000002+02:00",
        "day": "2026-02-28",
        "price": "1234567890.10",
        "tags": ["a", None],
        "ratio": 0.1,
        "small": 0.1,
        "raw": "AAEC",
        "yes": True,
        "more": {"a": [1.50, None]},
        "deep": {"a": 1, "b": ["2026-01-01"]},
    }
    await house.publish(table, {"id": "x", "data": data}, {"id": "y", "data": {"body": "harbour"}})

    async def same() -> None:
        found = {hit["id"]: hit["row"] for hit in (await house.search(table, "harbour"))["hits"]}
        answer = (await house.ask(f"SELECT * FROM {table}")).json()
        names = [column["name"] for column in answer["columns"]]
        rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
        assert found == {row["_id"]: row for row in rows}

    await same()
    await house.commit(table)
    house.build_and_swap(table)
    await same()


async def test_pages_follow_each_other(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, *(note(f"n{i}", f"harbour {'x ' * i}", year=i) for i in range(30)))
    await house.commit(table)
    house.build_and_swap(table)
    await house.publish(table, *(note(f"m{i}", f"harbour {'y ' * i}", year=i) for i in range(10)))
    for mode in ("text", "vector", "hybrid"):
        all_ = await house.ids(table, "harbour", mode=mode, k=40)
        pages = [await house.ids(table, "harbour", mode=mode, k=7, offset=at) for at in range(0, 40, 7)]
        assert [id_ for page in pages for id_ in page] == all_ and len(set(all_)) == 40
    ask = await house.search(table, "harbour", mode="vector", group="chunk", k=5, snippet=False, columns=["year"])
    assert all(hit["chunk"]["text"] and "snippet" not in hit and [*hit["row"]] == ["year"] for hit in ask["hits"])
    best = await house.search(table, "harbour", mode="vector", k=40)
    least = best["hits"][9]["score"]
    assert all(
        hit["score"] >= least
        for hit in (await house.search(table, "harbour", mode="vector", k=40, min_score=least))["hits"]
    )


async def test_a_vector_instead_of_words(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, note("tea", "green tea and cake"), note("boat", "a boat on the lake"))
    vector = [float(number) for number in open_model("wordllama").embed(["ships at sea"])[0]]
    answer = await house.search(table, vector=vector, k=1)
    assert [hit["id"] for hit in answer["hits"]] == ["boat"] and answer["mode"] == "vector"
    both = await house.search(table, "cake", vector=vector)
    assert both["mode"] == "hybrid" and {hit["id"] for hit in both["hits"]} == {"tea", "boat"}


async def test_more_than_memory_holds_is_said_and_can_be_waited_for(house: SearchHouse) -> None:
    table = await house.notes()
    house.library.limits[f"main.{table}"] = 10
    await house.publish(table, *(note(f"n{i}", f"harbour {i}") for i in range(20)))
    answer = await house.ask_search(table=table, query="harbour")
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "fresh_full"
    assert "frazil build" in answer.json()["error"]["hint"] and answer.headers["retry-after"]
    waiting = asyncio.create_task(house.search(table, "harbour", when_behind="wait", timeout_s=120, k=50))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await house.commit(table)
    house.build_and_swap(table)
    assert len((await waiting)["hits"]) == 20


class Unwell:
    """The real model, until it does not answer."""

    def __init__(self) -> None:
        self._real = open_model("wordllama")
        self.name, self.version, self.dims = self._real.name, self._real.version, self._real.dims
        self.is_down = False
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.is_down:
            raise Unavailable("the provider does not answer", code="model_unavailable", hint="try again")
        self.texts += texts
        return self._real.embed(texts)


async def test_what_is_new_is_embedded_once_for_all_who_wait(house: SearchHouse) -> None:
    table = await house.notes()
    model = house.library.opened[f"main.{table}"] = Unwell()
    await house.publish(table, note("a", "the old harbour"))
    await house.search(table, "harbour", mode="text")
    await house.publish(table, note("b", "the new harbour"))
    model.texts.clear()
    answers = await asyncio.gather(*(house.search(table, "harbour", mode="text") for _ in range(8)))
    assert all(len(answer["hits"]) == 2 for answer in answers)
    assert [text.strip() for text in model.texts] == ["the new harbour"], "neither again nor the old one"
    await house.commit(table)
    await house.running.gateway.directory.refresh()
    await house.search(table, "harbour", mode="text")
    assert len(model.texts) == 1, "a commit brings nothing new"


async def test_words_are_found_while_the_model_is_down(house: SearchHouse) -> None:
    table = await house.notes()
    model = house.library.opened[f"main.{table}"] = Unwell()
    await house.publish(table, note("a", "the old harbour"))
    await house.commit(table)
    house.build_and_swap(table)
    model.is_down = True
    await house.publish(table, note("b", "the new harbour"))
    for mode in ("vector", "hybrid"):
        assert await house.not_found(table=table, query="harbour", mode=mode) == (503, "model_unavailable")
    answer = await house.search(table, "harbour", mode="text")
    assert {hit["id"] for hit in answer["hits"]} == {"a", "b"} and answer["fresh_rows"] == 1
    model.is_down = False
    assert len((await house.search(table, "harbour", mode="hybrid"))["hits"]) == 2


async def test_every_search_is_in_the_audit_log(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, note("a", "lighthouse"))
    token = await house.token(f"read:{table}", name="an auditor's friend")
    await house.search(table, "lighthouse", token=token)
    await house.not_found(token=token, table=table, query="lighthouse", filter="nope")
    entries = [
        json.loads(line) for file in (house.folder / "audit").glob("*.jsonl") for line in file.open() if line.strip()
    ]
    mine = [entry for entry in entries if entry["action"] == "search" and entry.get("tables") == [f"main.{table}"]]
    assert [(entry["outcome"], entry.get("rows")) for entry in mine] == [("ok", 1), ("bad_sql", None)]
    assert mine[0]["snapshot"].startswith("fzt1.") and "lighthouse" not in json.dumps(mine)


async def test_eight_clients_search_while_others_write(house: SearchHouse) -> None:
    table = await house.notes()
    await house.publish(table, *(note(f"n{i}", f"harbour {i}", year=i) for i in range(100)))
    await house.commit(table)
    house.build_and_swap(table)
    written: dict[str, str] = {}
    over = asyncio.Event()

    async def write() -> None:
        for number in range(40):
            written[f"w{number}"] = await house.publish(table, note(f"w{number}", f"harbour word{number}"))
            if number % 15 == 7:
                await house.commit(table)
            await asyncio.sleep(0)
        over.set()

    async def read(seed: int) -> int:
        asked = 0
        while not over.is_set() or asked < 5:
            known = dict(written)
            answer = await house.search(table, "harbour", mode=("text", "vector")[seed % 2], k=200, snippet=0)
            found = {hit["id"] for hit in answer["hits"]}
            assert found >= known.keys() and len(found) >= 100 + len(known)
            if known:
                newest = list(known)[-1]
                one = await house.search(table, f"word{newest[1:]}", mode="text", min_token=known[newest])
                assert [hit["id"] for hit in one["hits"]] == [newest]
            asked += 1
        return asked

    _, *counts = await asyncio.gather(write(), *(read(seed) for seed in range(8)))
    assert all(counts)


async def test_searches_of_one_token_do_not_keep_others_from_their_turn(
    house: SearchHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads are given by token in rounds, and a search that is given up while it waits is not done."""
    table = await _table(house)
    greedy, other = [await house.token("sql", f"read:{table}") for _ in range(2)]
    ranked, began, may_end = searches._ranked, queue.SimpleQueue[str](), threading.Semaphore(0)

    def slowly(state: Any, plan: Any, allowed: Any) -> Any:
        began.put(str(plan.text))
        may_end.acquire()
        return ranked(state, plan, allowed)

    monkeypatch.setattr(searches, "_ranked", slowly)
    many = [
        asyncio.create_task(house.ask_search(token=greedy, table=table, query=f"g{number}", mode="text"))
        for number in range(searches._THREADS + 4)
    ]
    running = [await asyncio.to_thread(began.get, timeout=60) for _ in range(searches._THREADS)]
    one = asyncio.create_task(house.ask_search(token=other, table=table, query="mine", mode="text"))
    turns = house.running.gateway.searches._turns  # type: ignore[union-attr]
    async with asyncio.timeout(60):
        while turns.waiting < 5:
            await asyncio.sleep(0.01)
    may_end.release()
    following = [await asyncio.to_thread(began.get, timeout=60)]
    may_end.release()
    following.append(await asyncio.to_thread(began.get, timeout=60))
    assert "mine" in following, f"{running} ran, then {following}"
    may_end.release(len(many))
    assert {answer.status_code for answer in await asyncio.gather(one, *many)} == {200}
    assert turns.waiting == turns.fast == 0
