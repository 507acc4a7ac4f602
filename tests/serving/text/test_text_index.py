"""The text index on disk and the one of the fresh tail: the same questions, the same answers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from frazil.errors import InvalidInput
from frazil.serving import Bitmap
from frazil.serving.text import TextLayout
from frazil.serving.text.fresh_text import FreshText
from frazil.serving.text.index_files import build, open_text
from frazil.serving.text.text_index import TextIndex
from tests.serving.bitmaps import bitmap_of
from tests.serving.sentences import sentences

DOCUMENTS: list[dict[str, str | None]] = [
    {"title": "Green tea", "body": "How to brew green tea without burning the leaves."},
    {"title": "Running", "body": "She runs every morning and drinks tea afterwards."},
    {"title": "Cake", "body": "A cake with green icing, and no tea at all."},
    {"title": None, "body": "Café culture in Vienna: the runner-up was Zürich."},
    {"title": "Empty", "body": None},
    {"title": "Tea cake", "body": "Tea cake is a kind of cake to eat with a green-leaf tea."},
]
LAYOUT = TextLayout(("title", "body"))


def fresh(layout: TextLayout, documents: list[dict[str, str | None]]) -> FreshText:
    index = FreshText(layout)
    for ordinal, document in enumerate(documents):
        index.add(ordinal, document)
    return index


@pytest.fixture(scope="module", params=["on disk", "fresh"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextIndex | FreshText:
    if request.param == "fresh":
        return fresh(LAYOUT, DOCUMENTS)
    folder = tmp_path_factory.mktemp("text")
    assert build(LAYOUT, DOCUMENTS, folder).rows == len(DOCUMENTS)
    return open_text(folder)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tea", {0, 1, 2, 5}),
        ("TEAS", {0, 1, 2, 5}),
        ("run", {1}),
        ("runs running", {1}),
        ("runn*", {1, 3}),
        ("runne*", {3}),
        ("body:runn*", {3}),
        ('"green tea"', {0}),
        ('"tea green"', set()),
        ('"green te"*', {0}),
        ("green-leaf", {5}),
        ("cafe zurich", {3}),
        ("title:tea", {0, 5}),
        ("title:(tea cake)", {0, 2, 5}),
        ("tea AND cake", {2, 5}),
        ("tea -cake", {0, 1}),
        ("tea AND NOT (cake OR running)", {0}),
        ("NOT tea", {3, 4}),
        ("zzz", set()),
        ("zzz*", set()),
        ("zzz tea", {0, 1, 2, 5}),
        ("+zzz tea", set()),
        ("empty", {4}),
        ("", set()),
        ("!!! ???", set()),
        ("-", set()),
        ("the AND " + "x" * 500, {0, 3}),
    ],
)
def test_what_is_found(index: TextIndex | FreshText, query: str, found: set[int]) -> None:
    scores, ordinals = index.search(query, 10)
    assert set(ordinals.tolist()) == found
    assert (np.diff(scores) <= 0).all() and scores.dtype == np.float32


def test_the_best_comes_first(index: TextIndex | FreshText) -> None:
    assert index.search("tea cake", 1)[1].tolist() == [5]
    assert index.search("green tea", 1)[1].tolist() == [0]


def test_weights_choose_columns_and_order(index: TextIndex | FreshText) -> None:
    assert set(index.search("tea", 10, weights={"title": 1})[1].tolist()) == {0, 5}
    assert index.search("cake tea", 10, weights={"title": 50, "body": 1})[1].tolist()[:1] == [5]
    scores = index.search("title:tea", 1)[0]
    assert index.search("title:tea", 1, weights={"title": 3})[0] == pytest.approx(3 * scores, rel=1e-4)
    for wrong in ({"nope": 1.0}, {"title": -1.0}, {"title": float("nan")}, {"title": 0.0}, {}):
        with pytest.raises(InvalidInput):
            index.search("tea", 3, weights=wrong)


def test_how_many_of_the_words_there_must_be(index: TextIndex | FreshText) -> None:
    found = {n: set(index.search("green tea cake", 10, minimum_should=n)[1].tolist()) for n in (1, 2, 3, 99)}
    assert found[1] == {0, 1, 2, 5} and found[2] == {0, 2, 5} and found[3] == {2, 5} and found[99] == found[3]


def test_filters(index: TextIndex | FreshText) -> None:
    assert index.search("tea", 10, allowed=Bitmap.empty(6))[1].tolist() == []
    assert set(index.search("tea", 10, allowed=bitmap_of([1, 3, 5], 6))[1].tolist()) == {1, 5}
    assert index.search("tea", 1, allowed=bitmap_of([1], 6))[1].tolist() == [1]
    assert (index.search("tea", 9, allowed=Bitmap.full(6))[1] == index.search("tea", 9)[1]).all()


def test_nothing_that_is_typed_is_an_error(index: TextIndex | FreshText) -> None:
    rng = random.Random(5)
    pieces = [*'()"+-:*^~[]{}\\/!?&| \t\n\0', "AND", "OR", "NOT", "title:", "nope:", "tea", "gre", "日本", "é", "IN ["]
    for _ in range(400):
        typed = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randrange(20)))
        scores, ordinals = index.search(typed, 5)
        assert len(scores) == len(ordinals) <= 5
    assert len(index.search("\ud800 tea", 5)[1]) == 4


def test_k_is_checked(index: TextIndex | FreshText) -> None:
    for k in (0, -1, 10**9):
        with pytest.raises(InvalidInput):
            index.search("tea", k)


def test_the_tail_and_the_engine_agree_on_real_text(tmp_path: Path) -> None:
    """Two implementations of one promise: the same documents, and scores that differ by the engine's rounding only."""
    documents: list[dict[str, str | None]] = [{"title": text.split()[0], "body": text} for text in sentences()[:1500]]
    build(LAYOUT, documents, tmp_path)
    disk, tail = open_text(tmp_path), fresh(LAYOUT, documents)
    rng = random.Random(6)
    for _ in range(150):
        query = _some_query(rng)
        expected, got = _scored(disk.search(query, 2000)), _scored(tail.search(query, 2000))
        assert expected.keys() == got.keys(), query
        for ordinal, score in expected.items():
            assert got[ordinal] == pytest.approx(score, rel=0.05, abs=1e-3), (query, ordinal)


def _scored(found: tuple[np.ndarray, np.ndarray]) -> Mapping[int, float]:
    return dict(zip(found[1].tolist(), found[0].tolist(), strict=True))


def _some_query(rng: random.Random) -> str:
    words = [word.strip(".,()`'\"") for word in rng.choice(sentences()[:1500]).split()]
    some = [word for word in words if word.isalnum() and word not in ("AND", "OR", "NOT")] or ["the"]
    one, two, three = (rng.choice(some) for _ in range(3))
    forms = [f"{one} {two} {three}", f"{one} AND {two}", f"{one} -{two}", f"title:{one} {two}", f"+{one} {two}"]
    forms += [f'"{" ".join(words[:2])}"', f"({one} OR {two}) AND {three}", f"NOT {one}", f"{one} body:{two}"]
    return rng.choice(forms)


def test_filters_of_any_selectivity_give_what_is_best_among_the_allowed(tmp_path: Path) -> None:
    build(LAYOUT, ({"body": text} for text in sentences()), tmp_path)
    index = open_text(tmp_path)
    rng = np.random.default_rng(8)
    for query in ("return the value", "file", '"the file"', "ind*", "returns -true"):
        ordinals = index.search(query, 6000)[1]
        for share in (0.9, 0.5, 0.1, 0.01, 0.001):
            allowed = Bitmap.of_mask(rng.random(len(sentences())) < share)
            expected = ordinals[allowed.holds(ordinals)][:10]
            assert index.search(query, 10, allowed=allowed)[1].tolist() == expected.tolist()
        # The worst filter: only the last of the ranking are allowed.
        last = bitmap_of(ordinals[-3:], len(sentences()))
        assert index.search(query, 10, allowed=last)[1].tolist() == ordinals[-3:].tolist()


def test_fresh_documents_rank_among_those_of_the_artifact(tmp_path: Path) -> None:
    """By its own statistics, the only document of a tail would be worth next to nothing."""
    build(LAYOUT, ({"body": text} for text in sentences()), tmp_path)
    index = open_text(tmp_path)
    chosen = int(index.search("deque rotate", 1)[1][0])
    tail = FreshText(LAYOUT, like=index)
    tail.add(7, {"body": sentences()[chosen]})
    assert tail.search("deque rotate", 1)[0] == pytest.approx(index.search("deque rotate", 1)[0], rel=0.02)
    alone = fresh(LAYOUT, [{"body": sentences()[chosen]}])
    assert alone.search("deque rotate", 1)[0] < 0.5 * tail.search("deque rotate", 1)[0]


def test_fresh_documents_come_change_and_go() -> None:
    tail = FreshText(LAYOUT)
    rng = random.Random(9)
    model: dict[int, str] = {}
    for step in range(2000):
        ordinal = rng.randrange(50)
        if rng.random() < 0.3:
            tail.remove(ordinal)
            model.pop(ordinal, None)
        else:
            model[ordinal] = " ".join(rng.choices("tea cake jam bread milk".split(), k=3))
            tail.add(ordinal, {"body": model[ordinal]})
        if step % 50 == 0:
            for word in ("tea", "milk"):
                expected = {ordinal for ordinal, text in model.items() if word in text}
                assert set(tail.search(word, 100)[1].tolist()) == expected
    assert tail.rows == len(model)


def test_languages(tmp_path: Path) -> None:
    german = TextLayout(("body",), "german")
    build(german, [{"body": "Die Häuser der Stadt"}, {"body": "Ein Haus am See"}], tmp_path)
    assert set(open_text(tmp_path).search("Häusern", 5)[1].tolist()) == {0, 1}
    assert fresh(TextLayout(("body",), "none"), [{"body": "houses"}]).search("house", 5)[1].tolist() == []
    with pytest.raises(InvalidInput, match="klingon"):
        TextLayout(("body",), "klingon")
    for wrong in ((), ("a", "a")):
        with pytest.raises(InvalidInput):
            TextLayout(wrong)


def test_columns_may_be_called_anything_a_column_may(tmp_path: Path) -> None:
    layout = TextLayout(("ordinal", "stems_0", "words_0", "not"))
    build(layout, [{"ordinal": "tea", "stems_0": "cake", "words_0": "jam", "not": "milk"}], tmp_path)
    index = open_text(tmp_path)
    for query in ("ordinal:tea", "stems_0:cake", "words_0:jam", "not:milk"):
        assert index.search(query, 1)[1].tolist() == [0]
    assert index.search("ordinal:cake", 1)[1].tolist() == []


def test_many_threads_get_the_answers_of_one(tmp_path: Path) -> None:
    build(LAYOUT, ({"body": text} for text in sentences()[:2000]), tmp_path)
    index = open_text(tmp_path)
    queries = ["return the value", "file OR path", '"the file"', "ind*"] * 20
    alone = [index.search(query, 10)[1].tolist() for query in queries]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(index.search, query, 10) for query in queries]
        assert [future.result(timeout=60)[1].tolist() for future in asked] == alone
