from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.cli.load.ingest_csv import print_report
from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.startswith("frazil 0.")
    told = run("--help").out
    for verb in ("up", "status", "doctor", "tables", "publish", "compact", "expire", "orphans", "journal", "repair"):
        assert verb in told
    assert run("no-such-verb").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["tables", "list"],
        ["tables", "health"],
        ["publish", "t", "f.ndjson"],
        ["compact", "t", "--dry-run"],
        ["journal"],
        ["repair", "watermark", "t"],
    ],
)
def test_without_a_server_each_verb_says_so(run: Run, arguments: list[str]) -> None:
    Path("f.ndjson").write_text('{"data": {}}\n')
    ran = run(*arguments)
    assert ran.code == 3
    assert ran.err.startswith("Error: ")
    assert "Try:   start it with `frazil up`" in ran.err


def test_errors_are_json_too_when_asked(run: Run, server: ContractServer) -> None:
    ran = run("tables", "describe", "nope", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["error"]["code"] == "table_not_found"
    assert ran.err == "Error: no table nope\nTry:   frazil tables list\n"


def test_tables_from_options(run: Run, server: ContractServer) -> None:
    ran = run(
        "tables", "create", "sales.orders", "--column", "amount:decimal(12,2)", "--column", "at: timestamp",
        "--partition", "day(at)", "--unknown-fields", "keep", "--owner", "me", "--tag", "x", "--tag", "y",
        "--description", "[red]what[/] was sold", "--json",
    )  # fmt: skip
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "name": "sales.orders",
        "columns": {"amount": "decimal(12,2)", "at": "timestamp"},
        "partition": ["day(at)"],
        "unknown_fields": "keep",
        "owner": "me",
        "tags": ["x", "y"],
        "description": "[red]what[/] was sold",
    }
    assert "[red]what[/] was sold" in run("tables", "describe", "sales.orders").out
    listed = run("tables", "list").out
    assert "sales.orders" in listed
    assert "amount, at" in listed


def test_tables_from_a_file(run: Run, server: ContractServer) -> None:
    Path("d.json").write_text('{"name": "u", "columns": {"a": {"type": "string", "sensitivity": "pii"}}}')
    assert run("tables", "create", "--file", "d.json").out == "table u is ready\n"
    assert server.tables["u"]["columns"]["a"]["sensitivity"] == "pii"
    assert run("tables", "create", "v", "--file", "d.json").out == "table v is ready\n"
    assert "pii" in run("tables", "describe", "u").out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["create", "x"], "no columns"),
        (["create", "--column", "a:long"], "no name"),
        (["create", "x", "--column", "along"], "'along' is not a column"),
        (["create", "--file", "missing.json"], "cannot be read"),
        (["create", "--file", "bad.json"], "not JSON"),
        (["create", "--file", "list.json"], "declaration"),
        (["alter", "t"], "nothing to change"),
    ],
)
def test_wrong_declarations_are_refused_here(run: Run, server: ContractServer, arguments: list[str], word: str) -> None:
    Path("bad.json").write_text("{")
    Path("list.json").write_text("[]")
    ran = run("tables", *arguments)
    assert ran.code == 1
    assert word in ran.err
    assert server.requests == []


def test_alter_drop_and_undrop(run: Run, server: ContractServer) -> None:
    assert run("tables", "alter", "t", "--add", "b:string", "--owner", "me").code == 0
    assert json.loads(server.requests[-1][3]) == {"add_columns": {"b": "string"}, "owner": "me"}
    assert "undrop" in run("tables", "drop", "t").out
    assert json.loads(run("tables", "list", "--dropped", "--json").out)["tables"][0]["name"] == "t"
    assert run("tables", "undrop", "t").out == "table t is restored\n"


def test_status_shows_what_is_degraded_and_why(run: Run, server: ContractServer) -> None:
    server.status = {
        "status": "degraded",
        "parts": {"bus": {"status": "ok"}, "pipeline": {"status": "degraded", "reason": "t has failed [3] times"}},
        "tables": {
            "t": {
                "rows": 1234,
                "lag": {"events": 55, "seconds": 200.0},
                "last_commit_at": "2020-01-01T00:00:00+00:00",
                "last_error": {"code": "x", "message": "the disk is [full]"},
            }
        },
    }
    ran = run("status")
    assert ran.code == 1
    for word in ("degraded", "t has failed [3] times", "1,234", "55", "3.3 min", "days", "the disk is [full]"):
        assert word in ran.out
    ran = run("status", "--json")
    assert ran.code == 1
    assert json.loads(ran.out) == server.status
    server.status = {"status": "ok", "parts": {}, "tables": {}}
    ran = run("status")
    assert (ran.code, "no tables yet" in ran.out) == (0, True)


def test_journal(run: Run, server: ContractServer) -> None:
    assert "rows=5" in run("journal", "--table", "t", "--limit", "3").out
    assert server.requests[-1][2] == {"table": ["t"], "limit": ["3"]}
    assert json.loads(run("journal", "--json").out)["entries"][0]["kind"] == "commit"


def test_repair_needs_a_clear_word(run: Run, server: ContractServer) -> None:
    assert json.loads(run("repair", "bus", "t", "--json").out)["accept_loss"] is False
    assert json.loads(run("repair", "bus", "t", "--accept-loss", "--json").out)["accept_loss"] is True
    assert "watermark" in run("repair", "watermark", "t").out


def test_a_server_elsewhere(run: Run, server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TOKEN", Path("frazil-data/admin.token").read_text().strip())
    Path("frazil-data/admin.token").unlink()
    Path("frazil-data/run/supervisor.json").unlink()
    assert run("tables", "list", "--url", server.url).code == 0
    monkeypatch.setenv("FRAZIL_TOKEN", "frz_wrong")
    assert run("tables", "list", "--url", server.url).code == 1


def test_doctor_lists_every_setting(run: Run) -> None:
    told = json.loads(run("doctor", "--settings", "--json").out)
    assert {"name": "server.port", "variable": "FRAZIL_SERVER__PORT", "default": "7373"}.items() <= next(
        one for one in told if one["name"] == "server.port"
    ).items()


def test_doctor_names_what_is_wrong(run: Run, server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("frazil-data/admin.token").chmod(0o644)
    Path("frazil-data/catalog.db").write_text("no database at all" * 100)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setenv("FRAZIL_MIN_FREE_BYTES", str(1 << 62))
    ran = run("doctor", "--json")
    assert ran.code == 1
    told = json.loads(ran.out)
    bad = {one["check"] for one in told["checks"] if not one["ok"]}
    assert {"token", "catalog", "java", "disk"} <= bad
    assert all(one["hint"] for one in told["checks"] if not one["ok"])
    assert "✘ token" in run("doctor").out


def test_doctor_stops_at_wrong_settings(run: Run) -> None:
    Path("frazil.toml").write_text("[sever]\nport = 1\n")
    ran = run("doctor")
    assert ran.code == 1
    assert "✘ settings" in ran.out


def test_quarantines_are_listed_when_asked_for(run: Run, server: ContractServer) -> None:
    server.tables["t__quarantine"] = {"name": "t__quarantine", "kind": "bulk", "columns": {"line": "long"}}
    assert "t__quarantine" not in run("tables", "list").out
    assert "t__quarantine" in run("tables", "list", "--all").out
    assert len(json.loads(run("tables", "list", "--json").out)["tables"]) == 2


def test_help_keeps_what_stands_in_brackets(run: Run) -> None:
    assert "[sources.NAME]" in run("ingest", "postgres", "--help").out


@pytest.mark.parametrize(("count", "words"), [(1, "from 1 file in"), (2, "from 2 files in")])
def test_a_load_report_counts_its_files(count: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = [{"name": "a.csv", "rows": 3, "bytes": 9, "state": "loaded"}] * count
    numbers = {"rows_in": 3, "rows_out": 3, "quarantined": 0, "seconds": 1.0, "mb_per_second": 1.0}
    print_report({"table": "t", "load": "l", "files": files, "snapshot_id": 7, **numbers})
    assert words in capsys.readouterr().out
    print_report({"table": "t", "files": [{"state": "already loaded"}] * count})
    assert f"nothing to do, {words.removeprefix('from ').removesuffix(' in')} already loaded" in capsys.readouterr().out


def test_dead_letters_are_listed_resent_and_discarded(run: Run, server: ContractServer) -> None:
    ran = run("tables", "dead-letters", "t")
    assert ran.code == 0 and "2097153" in ran.out and "[red]no file holds it" in ran.out and "2 in all" in ran.out
    assert json.loads(run("tables", "dead-letters", "t", "--json").out)["total"] == 2
    ran = run("tables", "resend", "t")
    assert ran.code == 0 and ran.out.startswith("1 events are sent again, 1 dead letters are left")
    assert "it is there" in ran.out and json.loads(server.requests[-1][3]) == {}
    run("tables", "resend", "t", "--position", "5", "--position", "6", "--json")
    assert json.loads(server.requests[-1][3]) == {"positions": [5, 6]}
    assert run("tables", "discard", "t").code == 2
    assert run("tables", "discard", "t", "--position", "5").out == "1 dead letters are discarded, 0 are left\n"


def test_status_counts_dead_letters(run: Run, server: ContractServer) -> None:
    server.status["tables"] = {"orders": {"rows": 5, "dead_letters": 1234, "lag": {}}, "well": {"rows": 1, "lag": {}}}
    assert "1,234" in run("status").out
