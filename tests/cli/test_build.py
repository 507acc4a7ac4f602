from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer, Reply

REPORT: dict[str, Any] = {
    "state": "done",
    "table": "notes",
    "shelf": "notes@fast",
    "model": "wordllama",
    "dims": 256,
    "built": True,
    "is_current": True,
    "generation": "20260101t000000000-abcd",
    "snapshot_id": 7,
    "rows": 10,
    "chunks": 20,
    "vectors": 19,
    "quarantined": 1,
    "vectors_kept": 15,
    "vectors_read": 4,
    "bytes": 1_500_000,
    "seconds": 2.5,
    "steps": {"read": 1.0, "index": 0.5},
    "complete": True,
}


def replies(*bodies: dict[str, Any]) -> list[Reply | str]:
    return [(200, body, {}) for body in bodies]


def test_a_build_is_reported_to_people_and_to_programs(run: Run, server: ContractServer) -> None:
    server.troubles = replies({"id": "j1"}, {"state": "done", "complete": False, "continued_by": "j2"}, REPORT)
    ran = run("build", "notes", "--profile", "fast", "--force")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "notes@fast: 20260101t000000000-abcd built in 2.5 s"
    assert "10 rows, 20 chunks, 19 vectors of wordllama (256 numbers)" in lines[1]
    assert "15 of the last build, 4 read" in ran.out and "1.5 MB" in ran.out and "read 1.0, index 0.5" in ran.out
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", "/v1/tables/notes/build")
    assert json.loads(body) == {"force": True, "profile": "fast"}
    server.troubles = replies({"id": "j1"}, REPORT)
    assert json.loads(run("build", "notes", "--json").out)["generation"] == REPORT["generation"]


def test_nothing_to_build(run: Run, server: ContractServer) -> None:
    nothing = {**REPORT, "built": False, "because": "nothing has changed since"}
    server.troubles = replies({"id": "j1"}, nothing)
    assert (
        run("build", "notes").out == "notes@fast: nothing to build, nothing has changed since 20260101t000000000-abcd\n"
    )
    empty = {"state": "done", "shelf": "notes", "built": False, "because": "the table has no rows yet"}
    server.troubles = replies({"id": "j1"}, empty)
    assert run("build", "notes").out == "notes: nothing to build, the table has no rows yet\n"


def test_the_status_shows_what_runs(run: Run, server: ContractServer) -> None:
    job = {"id": "j1", "kind": "build", "subject": "main.notes", "state": "running"}
    told = {
        "status": "ok",
        "parts": {},
        "tables": {},
        "jobs": [{**job, "progress": {"read": 2000, "of": 5000, "begun": 1}}],
    }
    server.troubles = replies(told)
    assert "running: build notes read 2,000 of 5,000" in run("status").out
