"""Every kind of index against brute force: unfiltered, filtered at any selectivity, and at the edges."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from frazil.errors import InvalidInput
from frazil.serving import Bitmap
from frazil.serving.vectors import build
from frazil.serving.vectors.brute_force import nearest_by_brute_force, recall
from frazil.serving.vectors.config import KINDS, IndexConfig
from frazil.serving.vectors.exact_search import Floats, search_exactly
from frazil.serving.vectors.index_files import open_index
from frazil.serving.vectors.vector_index import VectorIndex
from tests.serving.bitmaps import bitmap_of
from tests.serving.sentences import vectors

DIMS = 96
QUERIES = 100
# So few vectors in so many dimensions hardly lie in lists: an `ivf` must read two thirds of them.
CONFIGS = {kind: IndexConfig(kind, {"probes": 100} if kind == "ivf" else {}) for kind in KINDS}
# Codes that are far too coarse for these vectors: what they miss, looking further must find.
CONFIGS["coarse pq"] = IndexConfig("pq", {"sub_dims": 4, "candidates": 50})


def held_out() -> tuple[Floats, Floats]:
    """What is indexed, and queries that are not."""
    every = vectors(DIMS)
    return every[QUERIES:], every[:QUERIES]


@pytest.fixture(scope="module", params=CONFIGS)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VectorIndex:
    folder = tmp_path_factory.mktemp("index")
    report = build(CONFIGS[request.param], held_out()[0], folder, threads=2)
    assert report.config == CONFIGS[request.param] and report.rows == len(held_out()[0])
    assert {path.name for path in folder.iterdir()} == set(report.files)
    return open_index(folder)


def test_recall_without_a_filter(index: VectorIndex) -> None:
    rows, queries = held_out()
    for k in (1, 10, 100):
        scores, ordinals = index.search(queries, k)
        assert ordinals.shape == scores.shape == (QUERIES, k)
        assert recall(scores, nearest_by_brute_force(rows, queries, k)[0]) >= 0.99
        assert (np.diff(scores, axis=1) <= 0).all()
        assert np.allclose(scores, np.einsum("nkd,nd->nk", rows[ordinals], queries), atol=1e-5), "scores are exact"
        assert all(len(set(row)) == k for row in ordinals.tolist())


@pytest.mark.parametrize("share", [1.0, 0.9, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001])
def test_recall_with_a_filter_of_any_selectivity(index: VectorIndex, share: float) -> None:
    rows, queries = held_out()
    allowed = Bitmap.of_mask(np.random.default_rng(3).random(len(rows)) < share)
    scores, ordinals = index.search(queries, 10, allowed=allowed)
    assert allowed.holds(ordinals.ravel()).all()
    assert recall(scores, nearest_by_brute_force(rows, queries, 10, allowed=allowed)[0]) >= 0.99


@pytest.mark.parametrize("share", [0.5, 0.2, 0.08])
def test_recall_when_all_that_is_near_is_forbidden(index: VectorIndex, share: float) -> None:
    """The worst filter: only what is far from the query is allowed."""
    if index.config.kind == "hnsw":
        pytest.skip("a graph leads to what is near; it is not the default for this reason")
    rows, queries = held_out()
    for query in queries[:20]:
        nearness = rows @ query
        allowed = Bitmap.of_mask(nearness < np.quantile(nearness, share))
        scores, _ = index.search(query, 10, allowed=allowed)
        assert recall(scores, nearest_by_brute_force(rows, query[None], 10, allowed=allowed)[0]) >= 0.99


def test_the_edges_of_filters(index: VectorIndex) -> None:
    rows, queries = held_out()
    nothing = index.search(queries[:3], 10, allowed=Bitmap.empty(len(rows)))
    assert nothing[0].shape == nothing[1].shape == (3, 0)
    three = bitmap_of([5, 70, 800], len(rows))
    scores, ordinals = index.search(queries[:1], 10, allowed=three)
    assert sorted(ordinals[0].tolist()) == [5, 70, 800] and scores.shape == (1, 3)
    everything = index.search(queries[:3], 10, allowed=Bitmap.full(len(rows)))
    assert (everything[1] == index.search(queries[:3], 10)[1]).all()
    with pytest.raises(ValueError, match="ordinals"):
        index.search(queries[:1], 10, allowed=Bitmap.full(7))


def test_more_asked_for_than_there_is(index: VectorIndex) -> None:
    rows, queries = held_out()
    scores, ordinals = index.search(queries[:1], 10_000)
    assert sorted(ordinals[0].tolist()) == list(range(len(rows)))
    many = Bitmap.of_mask(np.arange(len(rows)) % 2 == 0)
    scores, ordinals = index.search(queries[:1], 2900, allowed=many)
    assert recall(scores, nearest_by_brute_force(rows, queries[:1], 2900, allowed=many)[0]) >= 0.99


def test_wrong_queries_are_refused(index: VectorIndex) -> None:
    for query, code in (
        (np.zeros((1, DIMS + 1), np.float32), "wrong_dimension"),
        (np.zeros((0,), np.float32), "wrong_dimension"),
        (np.full((1, DIMS), np.nan, np.float32), "bad_vector"),
        (np.full((1, DIMS), np.inf, np.float32), "bad_vector"),
    ):
        with pytest.raises(InvalidInput) as refused:
            index.search(query, 3)
        assert refused.value.code == code
    for k in (0, -1, 1_000_000):
        with pytest.raises(InvalidInput) as refused:
            index.search(held_out()[1][:1], k)
        assert refused.value.code == "bad_k"
    assert index.search(np.empty((0, DIMS), np.float32), 3)[0].shape == (0, 3)


def test_many_threads_get_the_answers_of_one(index: VectorIndex) -> None:
    rows, queries = held_out()
    half = Bitmap.of_mask(np.arange(len(rows)) % 2 == 0)
    alone = [index.search(query, 10, allowed=half if at % 2 else None)[1].tolist() for at, query in enumerate(queries)]
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(index.search, queries[at % QUERIES], 10, allowed=half if at % 2 else None)
            for at in range(4 * QUERIES)
        ]
        together = [future.result(timeout=60)[1].tolist() for future in asked]
    assert together == alone * 4


@pytest.mark.parametrize("dims", [1, 2, 3, 7, 97])
@pytest.mark.parametrize("kind", ["pq", "ivf", "hnsw"])
def test_dimensions_that_codes_do_not_divide(tmp_path: Path, kind: str, dims: int) -> None:
    rows = vectors(dims)
    if kind == "hnsw" and dims < 7:
        pytest.skip("in so few dimensions neighbours are nearer than the 8 bits of the graph can tell")
    report = build(CONFIGS[kind], rows, tmp_path, threads=1)
    index = open_index(tmp_path)
    scores, _ = index.search(rows[:20], 5)
    assert (report.dims, index.dims, index.rows) == (dims, dims, len(rows))
    assert recall(scores, nearest_by_brute_force(rows, rows[:20], 5)[0]) >= 0.95


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_too_few_to_train_on_are_searched_exactly(tmp_path: Path, kind: str, rows: int) -> None:
    some = vectors(DIMS)[:rows]
    report = build(IndexConfig(kind), some, tmp_path)
    assert report.config == IndexConfig("flat")
    index = open_index(tmp_path)
    ordinals = index.search(vectors(DIMS)[:2], 10)[1]
    assert (ordinals == nearest_by_brute_force(some, vectors(DIMS)[:2], 10)[1]).all()
    assert index.search(vectors(DIMS)[:2], 10, allowed=Bitmap.empty(rows))[1].shape == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_vectors_are_all_found(tmp_path: Path, kind: str) -> None:
    """The same text two thousand times: codes cannot tell them apart, and need not."""
    rows = np.repeat(vectors(DIMS)[:2], 1500, axis=0)
    build(IndexConfig(kind), rows, tmp_path, threads=1)
    scores, ordinals = open_index(tmp_path).search(rows[:1], 50)
    assert (ordinals < 1500).all() and np.allclose(scores, 1, atol=1e-5)
    assert len(set(ordinals[0].tolist())) == 50


def test_exact_search_is_brute_force() -> None:
    rows, queries = held_out()
    some = Bitmap.of_mask(np.random.default_rng(5).random(len(rows)) < 0.3)
    for allowed in (None, some):
        found = search_exactly(rows, queries, 7, allowed=allowed)
        true = nearest_by_brute_force(rows, queries, 7, allowed=allowed)
        assert np.allclose(found[0], true[0], atol=1e-5)
        assert np.allclose(found[0], np.einsum("nkd,nd->nk", rows[found[1]], queries), atol=1e-5)


def test_recall_tells_a_bad_index_from_a_good_one() -> None:
    rows, queries = held_out()
    true, ordinals = nearest_by_brute_force(rows, queries, 10)
    assert recall(true, true) == 1.0
    half = true.copy()
    half[:, 5:] = -1
    assert recall(half, true) == pytest.approx(0.5)
    assert recall(np.einsum("nkd,nd->nk", rows[ordinals[::-1]], queries), true) < 0.2
    assert (ordinals == np.argsort(-(queries @ rows.T), axis=1, kind="stable")[:, :10]).mean() > 0.99
