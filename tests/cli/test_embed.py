from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer, Reply

REPORT: dict[str, Any] = {
    "state": "done",
    "table": "notes",
    "model": "wordllama",
    "version": "abc",
    "dims": 256,
    "snapshot_id": 7,
    "looked_at": "new rows",
    "rows": 10,
    "chunks": 20,
    "known": 3,
    "reused": 2,
    "embedded": 14,
    "quarantined": 1,
    "reasons": {"zero": 1},
    "published": 1,
    "seconds": 1.5,
    "complete": True,
    "is_of_table": True,
}


def replies(*bodies: dict[str, Any]) -> list[Reply | str]:
    return [(200, body, {}) for body in bodies]


def test_a_run_is_reported_to_people_and_to_programs(run: Run, server: ContractServer) -> None:
    server.troubles = replies({"id": "j1"}, REPORT)
    ran = run("embed", "notes", "--model", "minilm", "--shadow")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == "notes: 14 chunks embedded in 1.5 s"
    assert "zero (1)" in ran.out and "FROM notes__embeddings__quarantine" in ran.out
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", "/v1/tables/notes/embed")
    assert json.loads(body) == {"model": "minilm", "shadow": True, "retry": False, "sweep": False}
    server.troubles = replies({"id": "j1"}, {**REPORT, "swept": 4})
    assert "swept away      4" in run("embed", "notes", "--sweep").out
    assert json.loads(server.requests[-2][3])["sweep"] is True
    server.troubles = replies({"id": "j1"}, REPORT)
    assert json.loads(run("embed", "notes", "--json").out) == REPORT


def test_a_run_that_let_others_go_first_is_followed(run: Run, server: ContractServer) -> None:
    first = {**REPORT, "complete": False, "continued_by": "j2"}
    server.troubles = replies({"id": "j1"}, first, REPORT)
    told = json.loads(run("embed", "notes", "--json").out)
    assert (told["embedded"], told["rows"], told["seconds"], told["complete"]) == (28, 20, 3.0, True)
    assert "continued_by" not in told and server.requests[-1][1] == "/v1/jobs/j2"


def test_models_are_listed_and_deleted_only_with_yes(run: Run, server: ContractServer) -> None:
    model = {"model": "minilm", "vectors": 5, "quarantined": 0, "dims": None, "version": None, "last_run_at": None}
    server.troubles = replies({"table": "notes", "model": "x", "models": [{**model, "is_of_table": False}]})
    listed = run("embed", "notes", "--list").out
    assert "minilm" in listed and "not finished" in listed
    before = len(server.requests)
    refused = run("embed", "notes", "--delete-model", "minilm")
    assert refused.code != 0 and "--yes" in refused.err and len(server.requests) == before
    server.troubles = replies({"table": "notes", "model": "minilm", "deleted": 5})
    assert run("embed", "notes", "--delete-model", "minilm", "--yes").out == "notes: 5 vectors of minilm deleted\n"
    assert server.requests[-1][:2] == ("DELETE", "/v1/tables/notes/embeddings/minilm")
