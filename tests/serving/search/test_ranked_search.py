"""One question: grouping, ties, pages, filters, what is shown, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.errors import InvalidInput
from frazil.serving import Bitmap
from frazil.serving.search import Allowed, DocumentChange, SearchQuery, SearchState, ServedGenerations
from frazil.serving.vectors.brute_force import recall
from frazil.serving.vectors.config import IndexConfig
from tests.serving.bitmaps import bitmap_of
from tests.serving.search.world import Row, World, corpus, document, search, searchable
from tests.serving.sentences import sentences

DOCUMENTS = 3000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGenerations]:
    """Enough for an index with codes."""
    world = World(tmp_path_factory.mktemp("large"))
    serving = world.serving()
    serving.swap(world.build(corpus(DOCUMENTS), 100, IndexConfig("pq")))
    yield serving
    serving.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[World, ServedGenerations]]:
    world = World(tmp_path)
    serving = world.serving()
    yield world, serving
    serving.close()


def keys(serving: ServedGenerations, ask: SearchQuery, allowed: Any = None) -> list[str]:
    return [hit.key[0] for hit in search(serving, ask, allowed).hits]


def test_recall_on_real_text_at_any_selectivity(large: ServedGenerations) -> None:
    with large.reading() as reading:
        generation, model = reading.generation, large.searchable.model
        assert generation is not None and generation.index is not None and model is not None
        assert generation.index.config.kind == "pq"
        queries = model.embed(sentences()[DOCUMENTS : DOCUMENTS + 60])
        scores = generation.contents.vectors @ queries.T
        choose = np.random.default_rng(3)
        for share in (1.0, 0.5, 0.1, 0.01, 0.001):
            rows = Bitmap.of_mask(choose.random(generation.rows) < share)
            shares = []
            for at, query in enumerate(queries):
                found = reading.search(SearchQuery(vector=query, mode="vector"), Allowed(rows, None))
                best = np.full(generation.rows, -2.0, np.float32)
                np.maximum.at(best, generation.documents, scores[:, at])
                best[~rows.mask()] = -2.0
                expected = np.sort(best[best > -2.0])[::-1][:10]
                assert len(found.hits) == len(expected)
                scored = np.array([[hit.score for hit in found.hits]], np.float32)
                shares.append(recall(scored, expected.reshape(1, -1)))
            assert np.mean(shares) >= 0.99, share


def test_a_filter_that_forbids_the_nearest(large: ServedGenerations) -> None:
    ask = SearchQuery("return the number of items in a list", mode="vector", k=100)
    with large.reading() as reading:
        near = reading.search(ask)
        assert reading.generation is not None
        forbidden = reading.generation.rows_of([hit.key for hit in near.hits])
        assert len(forbidden) == 100
        allowed = Allowed(~bitmap_of(forbidden, reading.generation.rows))
        for mode in ("vector", "text", "hybrid"):
            found = reading.search(SearchQuery(ask.text, mode=mode, k=100), allowed)
            assert len(found.hits) == 100 and not {hit.key for hit in found.hits} & {hit.key for hit in near.hits}


def test_a_document_of_many_near_chunks_is_one_hit(small: tuple[World, ServedGenerations]) -> None:
    """One document fills thousands of first places; the others are found behind it."""
    world, serving = small
    some = "The lock is released before the method returns its result to the caller of the function."
    crowd = {"_id": "crowd", "title": None, "body": " ".join([some] * 1500), "year": 1}
    serving.swap(world.build([crowd, *(document(at) for at in range(40))], 100, IndexConfig("pq")))
    with serving.reading() as reading:
        assert reading.generation is not None
        assert (reading.generation.documents == 0).sum() > 1000
    ask = SearchQuery(some, mode="vector", k=20)
    found = keys(serving, ask)
    assert found[0] == "crowd" and len(set(found)) == 20
    assert keys(serving, SearchQuery(some, mode="hybrid", k=20))[0] == "crowd"
    single = search(serving, SearchQuery(some, mode="vector", k=20, by_document=False))
    assert {hit.key[0] for hit in single.hits} == {"crowd"}
    assert len({hit.chunk.start for hit in single.hits if hit.chunk}) == 20, "different chunks of it"
    serving.apply([DocumentChange(101, ("crowd",), None)], 102)
    assert "crowd" not in keys(serving, ask) and len(keys(serving, ask)) == 20
    serving.apply([DocumentChange(102, ("crowd",), {**crowd, "_id": "crowd"})], 103)
    assert keys(serving, ask)[0] == "crowd" and len(keys(serving, ask)) == 20
    assert {hit.key[0] for hit in search(serving, SearchQuery(some, mode="vector", k=20, by_document=False)).hits} == {
        "crowd"
    }


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_pages_of_equals_have_each_once(small: tuple[World, ServedGenerations], mode: Any) -> None:
    world, serving = small
    twins = [{**document(1), "_id": f"t{at:03}"} for at in range(150)]
    others = [document(at) for at in range(50)]
    serving.swap(world.build([*others, *twins], 100))
    serving.apply([DocumentChange(100 + at, (f"f{at}",), {**document(1), "_id": f"f{at}"}) for at in range(30)], 200)
    text = document(1)["body"]
    whole = keys(serving, SearchQuery(text, mode=mode, k=200))
    assert len(set(whole)) == 200
    pages = [
        key for offset in range(0, 200, 25) for key in keys(serving, SearchQuery(text, mode=mode, k=25, offset=offset))
    ]
    assert pages == whole, "and the same ones each time"
    for k in (1, 7, 60):
        assert keys(serving, SearchQuery(text, mode=mode, k=k)) == whole[:k]


def test_what_a_hit_shows(small: tuple[World, ServedGenerations]) -> None:
    world, serving = small
    long = "Ships wait. " * 30 + "The harbour pilot reads the <ice> chart at dawn. " + "Ropes freeze. " * 30
    rows: list[Row] = [
        {"_id": "a", "title": "Harbour", "body": long, "year": 1},
        {"_id": "b", "title": "Garden", "body": "Tomatoes ripen late in the north.", "year": 2},
    ]
    serving.swap(world.build(rows, 100))
    serving.apply(
        [DocumentChange(101, ("c",), {"_id": "c", "title": "Harbour lights", "body": "Lamps burn.", "year": 3})], 102
    )
    (hit,) = search(serving, SearchQuery("pilot charts", mode="text", columns=("year",))).hits
    assert hit.row == {"year": 1} and hit.key == ("a",) and not hit.fresh and hit.chunk is None
    assert hit.snippet is not None and hit.snippet_column == "body" and hit.text_score == hit.score
    assert "<b>pilot</b> reads the &lt;ice&gt; <b>chart</b>" in hit.snippet.html()
    near = search(serving, SearchQuery("who reads the ice chart", mode="vector", k=1)).hits[0]
    assert near.chunk is not None and near.chunk.text == long[near.chunk.start - 9 : near.chunk.end - 9]
    assert "pilot" in near.chunk.text, "offsets count from the title, which comes first and has a line of its own"
    fresh = search(serving, SearchQuery("lamps", mode="text")).hits[0]
    assert fresh.fresh and fresh.row == {"_id": "c", "title": "Harbour lights", "body": "Lamps burn.", "year": 3}
    both = search(serving, SearchQuery("harbour lights")).hits[0]
    assert both.key == ("c",) and both.vector_score is not None and both.text_score is not None
    bare = search(serving, SearchQuery("harbour", snippet_characters=0, passages=False, columns=())).hits[0]
    assert bare.snippet is None and bare.chunk is None and bare.row == {} and bare.key[0] in "ac"


def test_a_column_that_may_not_be_searched_is_not_found_by_its_name(small: tuple[World, ServedGenerations]) -> None:
    world, serving = small
    row = {"_id": "a", "title": "plain", "body": "secret", "year": 1}
    serving.swap(world.build([row], 100))
    serving.apply([DocumentChange(101, ("b",), {**row, "_id": "b"})], 102)
    assert keys(serving, SearchQuery("body:secret", mode="text")) == ["a", "b"]
    for text in ("body:secret", "secret", "+body:secret plain", "body:(secret OR x)", 'body:"secret"', "body:secr*"):
        found = search(serving, SearchQuery(text, mode="text", fields={"title": 1.0}))
        assert all("plain" in text for _ in found.hits) and (found.hits == () or "plain" in text)
    for hit in search(serving, SearchQuery("plain", mode="text", fields={"title": 1.0})).hits:
        assert hit.snippet is not None and hit.snippet_column == "title"


def test_scores_below_the_least_are_left_out(large: ServedGenerations) -> None:
    every = search(large, SearchQuery("open a file for reading", mode="vector", k=50)).hits
    least = every[20].score
    kept = search(large, SearchQuery("open a file for reading", mode="vector", k=50, min_score=least)).hits
    assert kept == every[: len(kept)] and len(kept) >= 21 and kept[-1].score >= least > every[len(kept)].score


def test_before_the_first_generation(small: tuple[World, ServedGenerations]) -> None:
    _, serving = small
    assert search(serving, SearchQuery("anything")).hits == ()
    serving.apply([DocumentChange(at, (f"d{at}",), document(at)) for at in range(1, 20)], 20)
    for mode in ("vector", "text", "hybrid"):
        found = search(serving, SearchQuery(document(5)["body"], mode=mode, k=3))
        assert found.hits[0].key == ("d5",) and found.generation is None and found.snapshot_id is None
        assert (found.position, found.fresh_searched) == (20, 19)


def test_a_table_without_a_model_and_one_without_rows(tmp_path: Path) -> None:
    world = World(tmp_path, dataclasses.replace(searchable(), model=None))
    serving = world.serving()
    serving.swap(world.build([document(at) for at in range(10)], 100))
    assert keys(serving, SearchQuery(document(3)["body"], mode="text", k=1)) == ["d3"]
    with pytest.raises(InvalidInput) as refused:
        search(serving, SearchQuery("x"))
    assert refused.value.code == "no_vectors"
    serving.swap(world.build([], 200))
    assert search(serving, SearchQuery("return", mode="text")).hits == ()
    serving.apply([DocumentChange(201, ("d1",), document(1))], 202)
    assert keys(serving, SearchQuery(document(1)["body"], mode="text")) == ["d1"]
    serving.close()


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"text": "x", "offset": -1}, "bad_search"),
        ({"text": "x", "offset": 9_999}, "bad_search"),
        ({"text": None}, "bad_search"),
        ({"vector": np.ones(256, np.float32), "mode": "hybrid"}, "bad_search"),
        ({"vector": np.zeros(256, np.float32), "mode": "vector"}, "bad_vector"),
        ({"vector": np.full(256, np.nan, np.float32), "mode": "vector"}, "bad_vector"),
        ({"vector": np.ones(5, np.float32), "mode": "vector"}, "wrong_dimension"),
        ({"text": "   ", "mode": "vector"}, "empty_query"),
        ({"text": "x", "by_document": False}, "bad_search"),
        ({"text": "x", "columns": ("nothing",)}, "unknown_column"),
        ({"text": "x", "fields": {"year": 1.0}}, "bad_weights"),
        ({"text": "x", "fields": {"body": -1.0}}, "bad_weights"),
        ({"text": "x", "vector_weight": -1.0}, "bad_weights"),
    ],
)
def test_what_makes_no_sense_is_refused(large: ServedGenerations, told: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        search(large, SearchQuery(**told))
    assert refused.value.code == code and refused.value.hint


def test_what_cannot_be_read_is_told(large: ServedGenerations) -> None:
    found = search(large, SearchQuery('nowhere:tea "open', mode="text"))
    assert len(found.ignored) == 2


def test_a_filter_of_another_state_is_not_taken(large: ServedGenerations) -> None:
    def wrong(reading: SearchState) -> Allowed:
        return Allowed(Bitmap.full(5), None)

    for allowed in (wrong, lambda reading: Allowed(None, Bitmap.full(5))):
        with pytest.raises(ValueError, match="the filter is over 5"):
            search(large, SearchQuery("x"), allowed)
