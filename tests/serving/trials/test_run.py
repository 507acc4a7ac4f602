"""Trials on real text and real vectors, their figures held against numpy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.embedding import embedded, open_model
from frazil.errors import FrazilError, NotFound, Unavailable
from frazil.registry import job_status, open_jobs
from frazil.requests import TRIAL
from frazil.serving.child_tasks import ChildTasks
from frazil.serving.trials import run as running
from frazil.serving.trials import vss
from frazil.serving.trials.dataset import from_rows
from frazil.serving.trials.eval_set import Prepare, made_from
from frazil.serving.trials.grid import TrialConfig
from frazil.serving.trials.measure import Build, MeasuredSearch
from tests.kills import address, finished, killed_at
from tests.serving.trials.place import TrialPlace
from tests.serving.trials.trial_probe import do_trial_jobs

GRID = [
    {"kind": "pq", "sub_dims": 4, "candidates": [20, 100]},
    {"kind": "ivf", "lists": 32, "probes": [1, 32]},
    "flat",
]


@pytest.fixture(scope="module")
def told(shared: TrialPlace) -> dict[str, Any]:
    return shared.tried(grid=GRID, queries=60)


def test_every_trial_is_told_and_journalled_with_its_figures(shared: TrialPlace, told: dict[str, Any]) -> None:
    assert [trial["state"] for trial in told["trials"]] == ["ok"] * 5, told
    journal = [row for row in shared.journal() if row["run"] == told["run"]]
    assert [row["trial"] for row in journal] == [trial["trial"] for trial in told["trials"]]
    for row in journal:
        assert row["recall"] is not None and 0 < row["p50_ms"] <= row["p99_ms"] and row["searches"] >= 60
        assert row["build_seconds"] >= 0 and row["size_bytes"] >= row["vectors"] * row["dims"] * 4
        assert row["memory_bytes"] > 0 and row["build_memory_bytes"] > 0
        assert row["model"] == "wordllama" and row["dims"] == 256 and row["snapshot_id"] is not None
        assert json.loads(row["machine"])["cores"] >= 1 and "faiss-cpu" in json.loads(row["engines"])
    by_kind = Counter(row["kind"] for row in journal)
    assert by_kind == {"pq": 2, "ivf": 2, "flat": 1}
    (flat,) = (row for row in journal if row["kind"] == "flat")
    assert flat["recall"] == 1.0 and flat["is_default"] and flat["index_bytes"] == 0
    one_list = next(row for row in journal if json.loads(row["config"]).get("probes") == 1)
    assert one_list["recall"] < 0.9, "one list of 32 does not hold the ten nearest"
    assert told["best"] in {trial["trial"] for trial in told["trials"] if trial["recall"] >= 0.99}
    assert told["left"] == 0 and told["asked"] == "sentences" and told["queries"] >= 50
    assert list(shared.scratch.iterdir()) == [], "nothing is left behind"


def test_recall_is_what_numpy_says(shared: TrialPlace, tmp_path: Path) -> None:
    table = shared.lake.table("main.notes")
    dataset = from_rows(shared.lake, table, table.name, "wordllama", tmp_path / "set", max_vectors=10_000, seed=1)
    eval_set = made_from(dataset, 40, 1, has_model=True)
    prepared = Prepare(dataset.folder, eval_set.questions, _spec(), dataset.version, 10, is_made=True).run()
    config = TrialConfig.parse({"kind": "ivf", "lists": 32, "probes": 3})
    Build(dataset.folder, tmp_path / "index", config, 1).run()
    found = MeasuredSearch(dataset.folder, tmp_path / "index", config, 10).run()
    vectors = np.asarray(dataset.vectors, dtype=np.float64)
    texts = [eval_set.questions[number].text or "" for number in prepared.kept]
    queries = embedded(open_model("wordllama"), texts).vectors.astype(np.float64)
    shares = []
    for query, ordinals in zip(queries, found.found, strict=True):
        scores = vectors @ query
        tenth = np.sort(scores)[-10]
        shares.append(np.mean(scores[ordinals] >= tenth - 1e-5))
    assert found.recall == pytest.approx(np.mean(shares), abs=1e-9)
    assert 0.1 < found.recall < 0.999


def test_queries_are_near_what_is_stored_and_not_equal_to_it(shared: TrialPlace, tmp_path: Path) -> None:
    table = shared.lake.table("main.notes")
    dataset = from_rows(shared.lake, table, table.name, "wordllama", tmp_path, max_vectors=500, seed=1)
    assert len(dataset) == 500 < dataset.of_vectors
    for has_model, asked in ((True, "sentences"), (False, "mixed")):
        made = made_from(dataset, 50, 3, has_model=has_model)
        assert made.asked == asked and len(made.questions) == 50
        assert made.id == made_from(dataset, 50, 3, has_model=has_model).id
        assert made.id != made_from(dataset, 50, 4, has_model=has_model).id
        model = _spec() if has_model else None
        Prepare(dataset.folder, made.questions, model, dataset.version, 5, is_made=True).run()
        best = np.load(tmp_path / "true-scores.npy")[:, 0]
        assert best.max() < 1 - 1e-5 and np.median(best) > 0.5
    stored = {text.strip() for text in dataset.texts}
    assert all(question.text not in stored for question in made_from(dataset, 50, 3, has_model=True).questions)


def test_a_given_eval_set_is_asked_as_it_is(shared: TrialPlace) -> None:
    dataset_texts = ["Return a new path with the suffix changed", "the size of a file in bytes"]
    vector = [0.0] * 255 + [1.0]
    given = [*dataset_texts, {"vector": vector}, {"text": "open a file", "expected": ["d00001", "nowhere"]}]
    told = shared.tried(grid=["flat"], eval_set=given, k=3)
    (trial,) = told["trials"]
    assert told["asked"] == "given" and told["queries"] == 4 and trial["k"] == 3
    assert trial["recall"] == 1.0 and trial["hit_rate"] in (0.0, 1.0)


@pytest.mark.parametrize(
    ("given", "code"),
    [([{"vector": [1.0, 2.0]}], "wrong_dimension"), ([{"vector": [0.0] * 256}], "no_queries")],
)
def test_an_eval_set_that_does_not_fit_is_refused(shared: TrialPlace, given: Any, code: str) -> None:
    with pytest.raises(FrazilError) as caught:
        shared.tried(grid=["flat"], eval_set=given)
    assert caught.value.code == code


def test_of_many_vectors_a_sample_is_tried_and_told(shared: TrialPlace) -> None:
    told = shared.tried(grid=["flat"], max_vectors=1000, queries=10)
    assert told["vectors"] == 1000 < told["of_vectors"]


@pytest.mark.slow
def test_a_search_tries_so_many_and_goes_on_near_the_best(shared: TrialPlace) -> None:
    told = shared.tried(search=6, kinds=["pq"], queries=20, seed=5, rule="smallest with recall >= 0.5")
    configs = [json.dumps(trial["config"]) for trial in told["trials"]]
    assert len(set(configs)) == len(configs) == 6
    later = [trial["config"] for trial in told["trials"][3:]]
    assert all(config["kind"] == "pq" for config in later)
    (best,) = (trial for trial in told["trials"] if trial["trial"] == told["best"])
    assert best["size_bytes"] == min(trial["size_bytes"] for trial in told["trials"] if trial["recall"] >= 0.5)
    again = shared.tried(search=6, kinds=["pq"], queries=20, seed=5, rule="smallest with recall >= 0.5")
    first = [trial["config"] for trial in told["trials"][:3]]
    assert [trial["config"] for trial in again["trials"][:3]] == first, "the same seed, the same draws"


@pytest.mark.slow
def test_vss_is_tried_where_its_wheel_is_and_skipped_with_a_reason_where_not(
    shared: TrialPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vss.vss_missing() is None:
        (trial,) = shared.tried(kinds=["vss"], grid=None, queries=10, max_vectors=1000)["trials"][:1]
        assert trial["state"] == "ok" and trial["recall"] > 0.9
    monkeypatch.setattr(running, "vss_missing", lambda: "the wheel is not here")
    told = shared.tried(grid=["vss", "flat"], queries=10, max_vectors=1000)
    assert [(trial["kind"], trial["state"]) for trial in told["trials"]] == [("vss", "skipped"), ("flat", "ok")]
    assert told["trials"][0]["reason"] == "the wheel is not here"


def test_few_vectors_are_flat_and_the_rest_says_so(own: TrialPlace) -> None:
    told = own.tried(grid=["flat", "pq"], queries=10)
    states = {trial["kind"]: trial["state"] for trial in told["trials"]}
    assert states == {"flat": "ok", "pq": "skipped"}


def test_what_takes_too_long_is_ended_and_told(own: TrialPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ChildTasks.run

    def impatient(self: ChildTasks, task: Any, *, timeout_seconds: float) -> Any:
        return real(self, task, timeout_seconds=0.1 if isinstance(task, Build) else timeout_seconds)

    monkeypatch.setattr(ChildTasks, "run", impatient)
    (trial,) = own.tried(grid=["flat"], queries=10)["trials"]
    assert trial["state"] == "too_long" and own.journal()[0]["state"] == "too_long"


def test_a_run_out_of_time_tells_what_is_left(own: TrialPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ChildTasks.run
    monkeypatch.setattr(ChildTasks, "run", lambda self, task, **_: real(self, task, timeout_seconds=60))
    told = own.tried(grid=["flat", "pq", "hnsw"], queries=10, limit_seconds=1)
    assert told["left"] == 3 - len(told["trials"]) > 0


def test_a_cancelled_trial_is_tried_again_by_the_same_handler(own: TrialPlace) -> None:
    """A runner that begins again cancels the handlers that its successor goes on with."""
    handler = own.doer()
    job = own.ask(grid=["flat"], queries=10)
    handler.cancel()
    with pytest.raises(Unavailable) as cancelled:
        handler.run(job, lambda progress: None)
    assert cancelled.value.code == "trial_given_up" and own.journal() == []
    (trial,) = handler.run(job, lambda progress: None)["trials"]
    assert trial["state"] == "ok"


@pytest.mark.slow
def test_a_search_that_was_cut_off_goes_on_and_tries_no_more_than_asked(
    shared: TrialPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shared.ask(search=4, kinds=["pq", "ivf"], queries=10, seed=2)
    monkeypatch.setattr(running, "BATCH_TRIALS", 2)
    real, tried = running.Run._trial, Counter[str]()

    def failing(self: running.Run, config: TrialConfig) -> dict[str, Any]:
        tried[config.text()] += 1
        if len(tried) == 4:
            raise RuntimeError("cut off")
        return real(self, config)

    monkeypatch.setattr(running.Run, "_trial", failing)
    with pytest.raises(RuntimeError):
        shared.do(job)
    monkeypatch.setattr(running.Run, "_trial", real)
    before = [row["trial"] for row in shared.journal() if row["run"] == job.id]
    assert len(before) == 2
    told = shared.do(job)
    after = [row["trial"] for row in shared.journal() if row["run"] == job.id]
    assert len(set(after)) == len(after) == len(told["trials"]) == 4 and after[:2] == before


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_trial:2", "before_trials_publish", "after_trials_publish", "after_trial:9"])
def test_a_run_that_is_killed_is_finished_with_every_trial_once(own: TrialPlace, point: str) -> None:
    grid = [{"kind": "pq", "candidates": list(range(20, 29))}, "flat"]
    job = own.ask(grid=grid, queries=10)
    killed_at(point, do_trial_jobs, address(own.lake), str(own.scratch))
    before = [row["trial"] for row in own.journal()]
    assert len(before) in (0, 8), "whole batches, or nothing"
    finished(do_trial_jobs, address(own.lake), str(own.scratch))
    assert open_jobs(own.lake.registry, [TRIAL.name]) == [] and job_status(own.lake.registry, job.id)["state"] == "done"
    rows = [row["trial"] for row in own.journal()]
    assert len(rows) == len(set(rows)) == 10 and rows[: len(before)] == before


def test_a_table_without_vectors_says_what_to_do(own: TrialPlace) -> None:
    with pytest.raises(NotFound) as caught:
        own.tried(model="minilm")
    assert caught.value.code == "model_not_found" and "frazil embed notes --model minilm" in caught.value.hint


def _spec() -> Any:
    from frazil.embedding.model_spec import find_model_spec

    return find_model_spec("wordllama")
