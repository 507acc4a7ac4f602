from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer, Reply

ARTIFACT: dict[str, Any] = {
    "generation": "g2",
    "state": "current",
    "snapshot_id": 77,
    "watermark": 100,
    "model": {"name": "wordllama", "version": "v", "dims": 256},
    "rows": 1200,
    "documents": 1200,
    "chunks": 1300,
    "vectors": 1300,
    "quarantined": 0,
    "bytes": 2_500_000,
    "entered_at": "2026-01-01T00:00:00+00:00",
    "age_seconds": 61.0,
    "promoted_at": "2026-01-01T00:00:00+00:00",
    "withdrawn": None,
    "served_by": ["one", "two"],
    "held_by": ["one", "two"],
}
OLD = {**ARTIFACT, "generation": "g1", "state": "stale", "withdrawn": "slow", "served_by": [], "model": None}
LISTED: dict[str, Any] = {
    "table": "notes",
    "profile": None,
    "current": "g2",
    "previous": None,
    "artifacts": [ARTIFACT, OLD],
    "readers": [],
}
MOVED: dict[str, Any] = {
    "table": "notes",
    "profile": None,
    "generation": "g3",
    "previous": "g2",
    "complete": True,
    "served_by": ["one", "two"],
    "behind": [],
    "trouble": None,
}


def replies(*bodies: dict[str, Any]) -> list[Reply | str]:
    return [(200, body, {}) for body in bodies]


def test_they_are_listed(run: Run, server: ContractServer) -> None:
    server.troubles = replies(LISTED)
    out = run("artifacts", "list", "notes").out
    first, second = (line for line in out.splitlines() if "g1" in line or "g2" in line)
    for word in ("g2", "current", "77", "1,200", "2.5 MB", "wordllama (256)", "one, two", "61"):
        assert word in first
    assert "stale (rolled back)" in second and "words alone" in second
    assert server.requests[-1][:2] == ("GET", "/v1/tables/notes/artifacts")
    server.troubles = replies(LISTED)
    assert json.loads(run("artifacts", "list", "notes", "--profile", "fast", "--json").out) == LISTED
    assert server.requests[-1][2] == {"profile": ["fast"]}
    server.troubles = replies({**LISTED, "artifacts": []})
    assert "frazil build notes" in run("artifacts", "list", "notes").out


def test_all_that_is_searched_is_listed(run: Run, server: ContractServer) -> None:
    tables = [
        {"name": "notes", "text": ["body"]},
        {"name": "t", "text": []},
        {"name": "own", "search": {"vector": "v"}},
    ]
    server.troubles = replies({"tables": tables}, LISTED, {**LISTED, "table": "own"})
    told = json.loads(run("artifacts", "list", "--json").out)
    assert [one["table"] for one in told["tables"]] == ["notes", "own"]
    assert [request[1] for request in server.requests[1:]] == [
        "/v1/tables/notes/artifacts",
        "/v1/tables/own/artifacts",
    ]


def test_one_is_shown(run: Run, server: ContractServer) -> None:
    manifest = {
        "built_at": "2026-01-01T00:00:00.123+00:00",
        "index": {"kind": "pq"},
        "engines": {"faiss": "1.9"},
        "seconds": {"contents": 1.5},
        "canaries": [{}, {}],
        "files": [{"path": "rows.arrow", "size": 1000, "sha256": "ab" * 32}],
    }
    shown = {**LISTED, **ARTIFACT, "manifest": manifest}
    server.troubles = replies(shown)
    out = run("artifacts", "show", "notes").out
    assert "notes g2" in out and server.requests[-1][:2] == ("GET", "/v1/tables/notes/artifacts/current")
    server.troubles = replies(shown)
    out = run("artifacts", "show", "notes", "g2").out
    for word in ("notes g2", "1,300 vectors", "kind pq", "faiss 1.9", "contents 1.5 s", "rows.arrow", "abab"):
        assert word in out
    assert server.requests[-1][:2] == ("GET", "/v1/tables/notes/artifacts/g2")


def test_one_is_checked(run: Run, server: ContractServer) -> None:
    checked: dict[str, Any] = {
        "table": "notes",
        "profile": None,
        "generation": "g2",
        "ok": True,
        "faults": [],
        "bytes": 5,
        "seconds": 1.0,
    }
    server.troubles = replies(checked)
    ran = run("artifacts", "verify", "notes", "previous")
    assert ran.code == 0 and "notes g2: 5 B" in ran.out
    assert server.requests[-1][:2] == ("POST", "/v1/tables/notes/artifacts/previous/verify")
    server.troubles = replies(checked)
    ran = run("artifacts", "verify", "notes", "g2")
    assert ran.code == 0 and "5 B are intact" in ran.out
    assert server.requests[-1][:2] == ("POST", "/v1/tables/notes/artifacts/g2/verify")
    fault = {"code": "artifact_file_hash", "reason": "rows.arrow is not what its builder wrote", "file": "rows.arrow"}
    server.troubles = replies({**checked, "ok": False, "faults": [fault]})
    ran = run("artifacts", "verify", "notes", "g2")
    assert ran.code == 1 and "artifact_file_hash" in ran.out and "rows.arrow is not" in ran.out


def test_swap_tells_when_all_have_followed(run: Run, server: ContractServer) -> None:
    server.troubles = replies(MOVED)
    ran = run("artifacts", "swap", "notes", "g3", "--back", "--timeout", "7")
    assert ran.code == 0 and "g3 is current, g2 was" in ran.out and "one, two" in ran.out
    method, path, query, _ = server.requests[-1]
    assert (method, path) == ("POST", "/v1/tables/notes/artifacts/g3/promote")
    assert query == {"back": ["true"], "wait_s": ["7.0"]}
    behind = {"reader": "two", "serving": "g2", "holds": ["g2"], "said_seconds_ago": 3.0}
    server.troubles = replies({**MOVED, "complete": False, "served_by": ["one"], "behind": [behind]})
    ran = run("artifacts", "swap", "notes", "g3")
    assert ran.code == 3 and "two serves g2" in ran.out
    assert "back" not in server.requests[-1][2]
    trouble = {"code": "artifact_file_missing", "reason": "rows.arrow is missing"}
    server.troubles = replies({**MOVED, "complete": False, "behind": [behind], "trouble": trouble})
    ran = run("artifacts", "swap", "notes", "g3")
    assert ran.code == 1 and "rows.arrow is missing" in ran.out


def test_rollback(run: Run, server: ContractServer) -> None:
    server.troubles = replies({**MOVED, "profile": "fast"})
    ran = run("artifacts", "rollback", "notes", "--reason", "too slow", "--profile", "fast")
    assert ran.code == 0 and ran.out.startswith("notes@fast: g3 is current")
    method, path, query, _ = server.requests[-1]
    assert (method, path) == ("POST", "/v1/tables/notes/artifacts/rollback")
    assert query == {"profile": ["fast"], "reason": ["too slow"], "wait_s": ["30.0"]}
    error = {"error": {"code": "artifact_no_previous", "message": "nothing to go back to", "hint": "name one"}}
    server.troubles = [(409, error, {})]
    ran = run("artifacts", "rollback", "notes")
    assert ran.code == 1 and "Error: nothing to go back to" in ran.err and "Try:   name one" in ran.err


PROFILE = {"name": "p", "table": "notes", "model": None, "index": None, "filter": "year > 1", "mode": None, "k": 5}


def test_profiles(run: Run, server: ContractServer) -> None:
    server.troubles = replies(PROFILE)
    words = ("--filter", "year > 1", "--k", "5", "--columns", "title, year", "--index", '{"kind": "flat"}')
    ran = run("profiles", "set", "p", "--table", "notes", *words)
    assert ran.code == 0 and "p searches notes" in ran.out and "year > 1" in ran.out
    method, path, _, body = server.requests[-1]
    assert (method, path) == ("PUT", "/v1/profiles/p")
    assert json.loads(body) == {
        "table": "notes",
        "filter": "year > 1",
        "k": 5,
        "columns": ["title", "year"],
        "index": {"kind": "flat"},
    }
    server.troubles = replies({"profiles": [PROFILE]})
    assert "filter year > 1; k 5" in run("profiles", "list", "notes").out
    assert server.requests[-1][2] == {"table": ["notes"]}
    server.troubles = replies(PROFILE)
    assert json.loads(run("profiles", "show", "p", "--json").out) == PROFILE
    server.troubles = replies({"name": "p", "deleted": True})
    assert run("profiles", "delete", "p").out == "the profile p is deleted\n"
    assert server.requests[-1][:2] == ("DELETE", "/v1/profiles/p")
    before = len(server.requests)
    refused = run("profiles", "set", "p", "--table", "notes", "--index", "flat")
    assert refused.code == 1 and "not JSON" in refused.err and len(server.requests) == before


@pytest.mark.parametrize("state", ["ok", "degraded", "no_artifact", "opening"])
def test_status_shows_what_is_searched(run: Run, server: ContractServer, state: str) -> None:
    trouble = {"code": "c", "reason": "rows.arrow is missing", "since": "now", "generation": "g3"}
    shelf = {
        "shelf": "notes",
        "table": "notes",
        "state": state,
        "generation": "g2",
        "age_seconds": 5.0,
        "fresh_documents": 7,
        "draining": ["g1"],
        "trouble": trouble if state == "degraded" else None,
    }
    server.status = {"status": "ok", "parts": {}, "tables": {"notes": {"rows": 1}}, "search": [shelf]}
    out = run("status").out
    assert "g2" in out and state.replace("_", " ") in out and "1 draining" in out
    assert ("rows.arrow is missing" in out) == (state == "degraded")
