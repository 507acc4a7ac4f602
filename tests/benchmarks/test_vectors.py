"""`bench search`, `build` and `swap`: what they ask, how they judge, and as a whole as small as they go."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import build as build_bench
from benchmarks import search as search_bench
from benchmarks import search_http, vector_controls
from benchmarks import swap as swap_bench
from benchmarks.report import Machine
from benchmarks.sentences import sentences
from benchmarks.vector_controls import VectorControls, start_controls
from benchmarks.vector_set import DIMS, K, VectorSet, vector_set
from frazil.errors import Unavailable
from frazil.events.declaration import parse_table
from frazil.events.decoding import Limits, decode_events
from tests.benchmarks.searched import told_by
from tests.benchmarks.test_bench import bench

ROWS, QUERIES = 1200, 20
MACHINE = Machine(2, 0.5)
WITHOUT = VectorControls({}, "they were not asked for")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> VectorSet:
    return vector_set(tmp_path_factory.mktemp("set"), rows=ROWS, queries=QUERIES)


def test_the_set_is_real_language_and_is_made_once(made: VectorSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made.vectors.shape == (ROWS, DIMS) and made.asked.shape == (QUERIES, DIMS)
    assert np.allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    assert len(set(made.texts)) == ROWS and all(40 <= len(text) <= 400 for text in made.texts)
    assert sorted(made.slots.tolist()) == list(range(ROWS))
    monkeypatch.setattr("benchmarks.vector_set.sentences", lambda count: pytest.fail("it is there already"))
    assert vector_set(made.folder.parent, rows=ROWS, queries=QUERIES) == made


def test_a_machine_with_too_little_text_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sentences._texts", lambda: iter(["One sentence that is long enough to count. No."]))
    assert sentences(1) == ["One sentence that is long enough to count."]
    with pytest.raises(Unavailable) as refused:
        sentences(2)
    assert refused.value.code == "too_little_text"


def test_recall_is_judged_by_brute_force(made: VectorSet) -> None:
    scores = made.vectors @ made.asked.T
    truth = np.argsort(-scores, axis=0)[:K].T.tolist()
    numbers = range(QUERIES)
    assert made.recall(truth, numbers) == 1.0
    worst = np.argsort(scores, axis=0)[:K].T.tolist()
    assert made.recall(worst, numbers) == 0.0
    assert made.recall([found[:5] + found[:5] for found in truth], numbers) == 0.5, "the same twice counts once"
    below = made.below(0.1)
    assert below == 120
    allowed = np.where((made.slots < below)[:, None], scores, -2)
    assert made.recall(np.argsort(-allowed, axis=0)[:K].T.tolist(), numbers, 0.1) == 1.0
    assert made.recall(truth, numbers, 0.1) < 0.5, "what a filter forbids is wrong, however near"


def test_the_product_takes_the_set_as_events(made: VectorSet) -> None:
    spec = parse_table(search_http.DECLARATION)
    (body,) = search_http.bodies(made)
    decoded = decode_events(
        body, search_http.ARROW, spec, received_at=datetime.now(UTC), limits=Limits(max_events=200_000)
    )
    assert decoded.batch.num_rows == ROWS
    assert np.allclose(decoded.batch.column("vector")[7].as_py(), made.vectors[7], atol=1e-7)


@pytest.mark.slow
def test_swap(tmp_path: Path) -> None:
    report = bench(tmp_path, "swap", "--rows", "1500", "--rounds", "1", "--swaps", "3")
    figure = report["figure"]
    assert figure["swaps"] == 3 and figure["generations"] == 2
    assert figure["errors"] == [] and figure["mixed"] == 0
    assert figure["p50_ms"] <= figure["p99_ms"] <= figure["max_ms"] and figure["asked"] > 0


@pytest.mark.slow
def test_search_without_controls(tmp_path: Path) -> None:
    report = bench(tmp_path, "search", "--rows", "3000", "--rounds", "1", "--no-controls", "--no-http")
    figure = report["figure"]
    assert figure["recall"] >= 0.99 and figure["goals"]["recall"] and figure["goals"]["filtered_recall"]
    assert set(figure["filtered"]) == {"10 %", "1 %", "0.1 %"} and figure["asked"] == 200
    assert report["control"]["not_measured"] == "they were not asked for"
    assert report["reached"] is False and figure["goals"]["lancedb"] is None and figure["goals"]["http"] is None


@pytest.mark.slow
def test_build_without_controls(tmp_path: Path) -> None:
    report = bench(tmp_path, "build", "--rows", "3000", "--no-controls")
    steps = report["figure"]["serving_steps_s"]
    assert {"contents", "index", "text", "duckdb", "hash", "publish", "fetch, verify, open, swap"} <= set(steps)
    assert report["figure"]["serving_s"] == pytest.approx(sum(steps.values()), rel=0.01)


def told(p50_ms: float, recall: float = 0.995) -> dict[str, float]:
    return {"p50_ms": p50_ms, "p99_ms": 2 * p50_ms, "recall": recall}


def over_http(*, p50_ms: float = 3.0, requests_per_s: float = 500.0, serving: float = 20.0) -> dict[str, Any]:
    asked = {"p50_ms": p50_ms, "engine_p50_ms": 1.0, "requests_per_s": requests_per_s}
    slow = {"p50_ms": 9.0, "engine_p50_ms": 1.0, "requests_per_s": 1.0}
    return {"committed": asked, "live": slow, "snapshot_to_serving": {"seconds": serving}}


def judged(**changed: Any) -> Any:
    beside = {name: {"as_it_comes": told(1.0, 0.9), "tuned": told(4.0)} for name in ("lancedb", "vss")}
    filters = {name: told(1.0) for name in ("10 %", "1 %", "0.1 %")}
    given: dict[str, Any] = {
        "ours": told(1.0),
        "theirs": beside,
        "filtered": filters,
        "prefiltered": {name: told(1.1) for name in filters},
        "over_http": over_http(),
        **changed,
    }
    return search_bench.report(100_000, others=WITHOUT, machine=MACHINE, **given)


def test_search_is_judged_by_every_goal_at_equal_recall() -> None:
    report = judged()
    assert report.reached and report.figure["ratios"] == {"lancedb": 0.25, "vss": 0.25}
    for changed, goal in (
        ({"ours": told(1.0, 0.98)}, "recall"),
        ({"ours": told(1.01)}, "vss"),
        ({"filtered": {"1 %": told(1.0, 0.9)}}, "filtered_recall"),
        ({"filtered": {"1 %": told(1.2)}}, "filtered"),
        ({"over_http": over_http(p50_ms=3.1)}, "http"),
        ({"over_http": over_http(requests_per_s=499.0)}, "http_clients"),
        ({"over_http": over_http(serving=20.1)}, "snapshot_to_serving"),
        ({"over_http": {}}, "http"),
        ({"theirs": {}}, "lancedb"),
    ):
        report = judged(**changed)
        assert not report.figure["goals"][goal] and not report.reached, goal


def test_builds_are_judged_by_their_medians() -> None:
    def taken(*seconds: float) -> list[dict[str, float]]:
        return [{"seconds": one, "bytes": 1.0} for one in seconds]

    indexed = {"ours": taken(3.0, 9.0, 3.0), "lancedb": taken(20.0), "vss": taken(60.0), "faiss_hnsw": taken(30.0)}
    artifacts = [{"contents": 1.0, "index": 19.0}]
    report = build_bench.report(100_000, indexed, artifacts, WITHOUT, MACHINE)
    assert report.figure["ratios"] == {"lancedb": 0.15, "vss": 0.05, "faiss_hnsw": 0.1} and report.reached
    assert not build_bench.report(100_000, {**indexed, "vss": taken(59.0)}, artifacts, WITHOUT, MACHINE).reached
    assert not build_bench.report(100_000, indexed, [{"contents": 2.0, "index": 19.0}], WITHOUT, MACHINE).reached
    assert not build_bench.report(100_000, {"ours": taken(3.0)}, artifacts, WITHOUT, MACHINE).reached


def test_a_swap_is_judged_by_the_slowest_answer_and_by_every_error() -> None:
    quiet = [swap_bench.Heard(seconds=[0.001] * 99 + [0.002])]

    def judge(**heard: Any) -> bool:
        swapped = swap_bench.Heard(**{"seconds": [0.001, 0.003], **heard})
        return swap_bench.report(1000, quiet, [swapped], [0.1], MACHINE).reached

    assert judge() and not judge(seconds=[0.0031]) and not judge(mixed=1) and not judge(errors=["no_generation"])


def test_controls_that_cannot_be_had_are_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("no-such-package-of-frazil==1 --hash=sha256:00\n")
    monkeypatch.setattr(vector_controls, "LOCK", lock)
    with ExitStack() as running:
        found = start_controls(running, tmp_path, cache=tmp_path / "cache", engines=("lancedb",))
    assert not found.running and found.reason.startswith("the environment of the controls cannot be made")


class Engine:
    """A control that finds more the further it looks."""

    def __init__(self, made: VectorSet, recalls: dict[int, int]) -> None:
        self.truth = np.argsort(-(made.vectors @ made.asked.T), axis=0)[:K].T.tolist()
        self.recalls = recalls

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        right = self.recalls[order["options"].get("ef_search", 0)]
        return {"asked": [0.001] * len(order["numbers"]), "found": [self.truth[n][:right] for n in order["numbers"]]}


@pytest.mark.parametrize(
    ("recalls", "expected"),
    [
        ({0: 10}, ({}, 1.0)),
        ({0: 8, 128: 9, 256: 10}, ({"ef_search": 256}, 1.0)),
        ({0: 8, 128: 9, 256: 9, 512: 9, 1024: 9}, ({"ef_search": 128}, 0.9)),
    ],
)
def test_a_control_looks_as_far_as_it_must(made: VectorSet, recalls: Any, expected: Any) -> None:
    control = vector_controls.VectorControl("vss", Engine(made, recalls), "1")  # type: ignore[arg-type]
    options, found = control.tuned(made, range(QUERIES))
    assert options == expected[0] and found == pytest.approx(expected[1])


def test_an_index_that_was_built_before_is_opened(made: VectorSet) -> None:
    orders: list[str] = []

    class Child:
        def ask(self, order: dict[str, Any]) -> dict[str, Any]:
            orders.append(order["do"])
            return {"seconds": 1.5} if order["do"] == "build" else {}

    for _ in range(2):
        control = vector_controls.VectorControl("vss", Child(), "9")  # type: ignore[arg-type]
        control.ready(made)
        assert control.built == {"seconds": 1.5}
    assert orders == ["build", "open"]


def test_the_lock_has_hashes_and_no_addresses() -> None:
    text = vector_controls.LOCK.read_text()
    assert "://" not in text and "lancedb==" in text and "duckdb-extension-vss==" in text
    assert text.count("--hash=sha256:") >= text.count("==")


async def test_searchers_post_the_contract_and_tell_what_they_found(made: VectorSet) -> None:
    seen: list[dict[str, Any]] = []

    def answering(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        seen.append(body)
        assert path == "/v1/search"
        return 200, {"hits": [{"id": "s3"}], "generation": "g", "elapsed_ms": 1.0}

    order = {"table": "sentences", "queries": str(made.folder / "queries.npy"), "k": 10, "numbers": [2, 5]}
    order["freshness"] = "committed"
    heard = await told_by(answering, order)
    assert [one["ids"] for one in heard["asked"]] == [["s3"], ["s3"]]
    assert seen[0]["mode"] == "vector" and seen[0]["freshness"] == "committed" and seen[0]["k"] == 10
    assert np.allclose(seen[1]["vector"], made.asked[5])
    heard = await told_by(answering, {**order, "connections": 3, "seconds": 0.2})
    assert len(heard["asked"]) >= 3 and heard["seconds"] >= 0.2
    with pytest.raises(SystemExit, match="refused: 503"):
        await told_by(lambda path, body: (503, {"error": json.dumps(body)[:9]}), order)
