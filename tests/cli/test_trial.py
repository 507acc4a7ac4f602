from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer, Reply

TRIAL: dict[str, Any] = {
    "run": "r1",
    "trial": "t1",
    "purpose": "index",
    "state": "ok",
    "kind": "pq",
    "config": {"kind": "pq", "sub_dims": 2, "candidates": 100},
    "is_default": True,
    "k": 10,
    "vectors": 1000,
    "recall": 0.9954,
    "p50_ms": 0.123,
    "p99_ms": 0.4,
    "build_seconds": 1.5,
    "size_bytes": 3 << 20,
    "memory_bytes": 5 << 20,
}
SKIPPED = {**TRIAL, "trial": "t2", "kind": "vss", "config": {"kind": "vss"}, "state": "skipped", "reason": "no wheel"}
REPORT: dict[str, Any] = {
    "state": "done",
    "table": "notes",
    "run": "r1",
    "model": "wordllama",
    "dims": 256,
    "vectors": 1000,
    "of_vectors": 4000,
    "generation": "g7",
    "k": 10,
    "queries": 200,
    "asked": "sentences",
    "trials": [TRIAL, SKIPPED],
    "left": 2,
    "rule": "fastest with recall >= 0.99",
    "best": "t1",
    "seconds": 12.0,
}


def replies(*bodies: dict[str, Any]) -> list[Reply | str]:
    return [(200, body, {}) for body in bodies]


def test_a_run_is_asked_for_and_shown(run: Run, server: ContractServer, tmp_path: Path) -> None:
    server.troubles = replies({"id": "j1"}, REPORT)
    ran = run("trial", "notes", "--kinds", "pq, vss", "-k", "10", "--limit", "60")
    assert ran.code == 0, ran.err
    for words in ("2 trials in 12 s", "sample of 4,000", "generation g7", "0.9954", "no wheel", "2 trials left out"):
        assert words in ran.out, words
    assert "notes__trials" in ran.out and "fastest with recall >= 0.99" in ran.out
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", "/v1/tables/notes/trials")
    assert json.loads(body) == {"kinds": ["pq", "vss"], "k": 10, "limit_seconds": 60}
    server.troubles = replies({"id": "j1"}, REPORT)
    assert json.loads(run("trial", "run", "notes", "--json").out) == REPORT
    assert json.loads(server.requests[-2][3]) == {}


def test_grids_and_eval_sets_come_from_files_or_the_line(run: Run, server: ContractServer, tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text('[{"kind": "pq"}]')
    (tmp_path / "eval.txt").write_text('how to skate\n\n{"text": "ice", "expected": ["n1"]}\n')
    (tmp_path / "eval.json").write_text('["a", {"vector": [1]}]')
    for arguments, wanted in (
        (("--grid", "grid.json"), {"grid": [{"kind": "pq"}]}),
        (("--grid", '["flat"]'), {"grid": ["flat"]}),
        (("--eval", "eval.txt"), {"eval_set": ["how to skate", {"text": "ice", "expected": ["n1"]}]}),
        (("--eval", "eval.json"), {"eval_set": ["a", {"vector": [1]}]}),
        (("--search", "5", "--seed", "3"), {"search": 5, "seed": 3}),
    ):
        server.troubles = replies({"id": "j1"}, REPORT)
        assert run("trial", "notes", *arguments, "--json").code == 0
        assert json.loads(server.requests[-2][3]) == wanted
    before = len(server.requests)
    for arguments in (("--grid", "absent.json"), ("--grid", "[not json"), ("--eval", "absent.txt")):
        refused = run("trial", "notes", *arguments)
        assert refused.code == 1 and "Error:" in refused.err and "Try:" in refused.err
    assert len(server.requests) == before


def test_models_are_shown_side_by_side(run: Run, server: ContractServer) -> None:
    model = {
        "model": "wordllama",
        "state": "ok",
        "hit_rate": 0.91,
        "mrr": 0.8,
        "vectors": 10,
        "dims": 256,
        "p50_ms": 0.1,
    }
    failed = {"model": "far", "state": "failed", "reason": "model_unavailable: silent", "vectors": 10, "dims": 8}
    told = {"state": "done", "table": "notes", "k": 10, "queries": 20, "documents": 5, "asked": "sentences"}
    server.troubles = replies({"id": "j1"}, {**told, "models": [model, failed]})
    ran = run("trial", "notes", "--models", "wordllama,far")
    assert ran.code == 0 and "0.9100" in ran.out and "model_unavailable" in ran.out, ran.err
    assert json.loads(server.requests[0][3]) == {"models": ["wordllama", "far"]}


def test_the_best_is_told_promoted_and_forgotten(run: Run, server: ContractServer) -> None:
    best = {"table": "notes", "shelf": "main.notes", "config": TRIAL["config"], "because": "it is", "considered": 3}
    server.troubles = replies(best)
    ran = run("trial", "best", "notes", "--rule", "smallest with recall >= 0.9")
    assert ran.code == 0 and "pq sub_dims 2, candidates 100" in ran.out and "--promote" in ran.out, ran.err
    assert json.loads(server.requests[-1][3]) == {"rule": "smallest with recall >= 0.9", "promote": False}
    server.troubles = replies(best)
    assert "the next build uses it" in run("trial", "best", "notes", "--promote", "--recall", "0.9").out
    server.troubles = replies({"shelf": "main.notes", "forgotten": {"kind": "flat"}})
    assert "flat is forgotten" in run("trial", "best", "notes", "--forget").out
    assert server.requests[-1][:2] == ("DELETE", "/v1/tables/notes/trials/best")
    assert run("trial", "best", "notes", "--forget", "--promote").code == 1


@pytest.mark.parametrize(("name", "begins"), [("c.svg", "<?xml"), ("c.html", "<!DOCTYPE html>")])
def test_a_chart_is_written(run: Run, server: ContractServer, tmp_path: Path, name: str, begins: str) -> None:
    server.troubles = replies({"trials": [TRIAL, SKIPPED]})
    ran = run("trial", "chart", "notes", "--out", name)
    assert ran.code == 0 and ran.out == f"{name}: 1 trial\n", ran.err
    assert (tmp_path / name).read_text().startswith(begins)


def test_a_chart_of_nothing_or_to_nowhere_is_refused(run: Run, server: ContractServer) -> None:
    assert run("trial", "chart", "notes", "--out", "c.pdf").code == 1
    server.troubles = replies({"trials": []})
    assert "frazil trial notes" in run("trial", "chart", "notes", "--out", "c.svg").err
    server.troubles = replies({"trials": [TRIAL]})
    assert run("trial", "chart", "notes", "--out", "no/such/folder/c.svg").code == 2


def test_trials_are_listed(run: Run, server: ContractServer) -> None:
    server.troubles = replies({"trials": [TRIAL]})
    assert "0.9954" in run("trial", "list", "notes").out
    server.troubles = replies({"trials": []})
    assert "no trials yet" in run("trial", "list", "notes", "--run", "r9").out
    assert server.requests[-1][2]["run"] == ["r9"]
