from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.cli.terminal_cells import printable
from frazil.runtime.data_dir import DataDir, write_json, write_private
from tests.cli.conftest import Run
from tests.cli.contract_server import TOKEN, problem
from tests.client.query_server import SLOW, QueryServer, serving

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r\n[red]x[/]"
SPELLED = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r\n[red]x[/]"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QueryServer]:
    with serving() as state:
        data = DataDir(tmp_path / "frazil-data")
        data.prepare()
        write_private(data.token_file, f"{TOKEN}\n")
        write_json(data.supervisor_file, {"url": state.url})
        state.tables["notes"] = {"name": "notes", "columns": {"v": "long"}}
        yield state


def test_an_answer_is_a_table_with_its_facts(run: Run, server: QueryServer) -> None:
    ran = run("sql", "SELECT 9007199254740993 AS big, '[red]x[/]' AS text, NULL AS none, true AS yes, [1, 2] AS l")
    assert (ran.code, ran.err) == (0, "")
    heading, _, row, facts = ran.out.splitlines()
    assert heading.split() == ["big", "text", "none", "yes", "l"]
    assert row.split() == ["9007199254740993", "[red]x[/]", "null", "true", "[1,", "2]"]
    assert facts.startswith(f"1 row · notes at {2**62 + 1} and 3 live rows, 12 s old · token fzt1.")
    assert facts.endswith("… · 1.5 ms")


def test_wide_answers_are_not_folded_in_a_pipe(run: Run, server: QueryServer) -> None:
    assert "x" * 1000 in run("sql", "SELECT repeat('x', 1000) AS a").out
    assert "y" * 2000 + "…" in run("sql", "SELECT repeat('y', 5000) AS a").out


def test_values_cannot_steer_the_terminal(run: Run, server: QueryServer) -> None:
    server.run("CREATE TABLE bad AS SELECT ''::VARCHAR AS v")
    server.run(f"UPDATE bad SET v = '{ATTACK}'")
    ran = run("sql", "SELECT v, v AS \"n\x1b[1mame\", [v] AS l, {'k\x9b': v} AS s FROM bad")
    assert SPELLED in ran.out
    assert not set(ran.out) & set("\x1b\x9b\x07\r\u202e")
    ran = run("sql", f"SELECT CAST('{ATTACK}' AS INTEGER)")
    assert ran.code == 1
    assert not set(ran.err) & set("\x1b\x9b\x07\r\u202e")


def test_text_formats_are_tamed_on_a_terminal_only(
    run: Run, server: QueryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT chr(27) || '[2J' AS a, chr(155) AS b"
    assert "\x1b[2J" in run("sql", query, "--format", "csv").out, "a program gets the value as it is"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for format in ("csv", "ndjson", "json"):
        told = run("sql", query, "--format", format).out
        assert "[2J" in told and not set(told) & set("\x1b\x9b")
    ran = run("sql", query, "--format", "arrow")
    assert ran.code == 1 and "--output" in ran.err


def test_a_prompt_has_no_output_file(run: Run, server: QueryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert "there is no query" in run("sql", "--output", "x.csv").err
    assert "there is no query" in run("sql", "--param", "5").err


def test_what_is_printable_stays() -> None:
    family = "\U0001f468\u200d\U0001f469"
    assert printable(f"Zoë {family} مر\u200cحبا $€\\n") == f"Zoë {family} مر\u200cحبا $€\\n"
    assert printable("a\nb\tc\x00\ud800\U000e0041\u2028") == r"a\nb\tc\x00\ud800\U000e0041\u2028"
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_the_answer_object(run: Run, server: QueryServer, arguments: list[str]) -> None:
    answer = json.loads(run("sql", "SELECT 9223372036854775807 AS a, 1.10 AS d", *arguments).out)
    assert answer["rows"] == [[9223372036854775807, "1.10"]]
    assert answer["columns"][1]["name"] == "d"
    assert answer["snapshots"]["notes"]["snapshot_id"] == 2**62 + 1


def test_formats_for_programs(run: Run, server: QueryServer) -> None:
    query = "SELECT range AS a, 'x,\"y\"\n' AS b FROM range(2)"
    rows = list(csv.reader(io.StringIO(run("sql", query, "--format", "csv").out)))
    assert rows == [["a", "b"], ["0", 'x,"y"\n'], ["1", 'x,"y"\n']]
    lines = run("sql", query, "--format", "ndjson").out.splitlines()
    assert [json.loads(line)["a"] for line in lines] == [0, 1]
    ran = run("sql", query, "--output", "o.arrow")
    assert (ran.out, ran.err) == ("", "2 rows in o.arrow\n")
    assert pa.ipc.open_stream(Path("o.arrow").read_bytes()).read_all()["a"].to_pylist() == [0, 1]
    run("sql", query, "-o", "o.txt", "--format", "csv")
    assert Path("o.txt").read_text().startswith("a,b")


def test_the_query_from_a_file_or_standard_input(
    run: Run, server: QueryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("q.sql").write_text("SELECT 'from a file' AS a;\n")
    assert "from a file" in run("sql", "--file", "q.sql").out
    for arguments in (["sql", "-"], ["sql"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 'from a pipe' AS a"))
        assert "from a pipe" in run(*arguments).out


def test_every_option_reaches_the_server(run: Run, server: QueryServer) -> None:
    ran = run(
        "sql", "SELECT $a, $b", "--param", "a=5", "--param", "b=x=y", "--freshness", "committed",
        "--min-token", "fzt1.x", "--as-of", "notes=2026-11-01T00:00:00Z",
        "--as-of", "sales.orders=2026-11-02T00:00:00Z",
        "--snapshot", f"other={2**62 + 1}", "--max-rows", "7", "--timeout", "1.5", "--when-behind", "wait",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert server.asked[-1] == {
        "sql": "SELECT $a, $b",
        "parameters": {"a": 5, "b": "x=y"},
        "freshness": "committed",
        "min_token": "fzt1.x",
        "as_of": {"notes": "2026-11-01T00:00:00Z", "sales.orders": "2026-11-02T00:00:00Z"},
        "snapshot": {"other": 2**62 + 1},
        "max_rows": 7,
        "timeout_s": 1.5,
        "when_behind": "wait",
        "format": "json",
    }
    run("sql", "SELECT 1", "--as-of", "2026-11-01T00:00:00Z")
    assert server.asked[-1]["as_of"] == "2026-11-01T00:00:00Z"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (["5", "1.5", "true", "null", "[1, 2]"], [5, 1.5, True, None, [1, 2]]),
        (["007", "x", "", "NaN", '"5"', '"a=b"', "9007199254740993"], ["007", "x", "", "NaN", "5", "a=b", 2**53 + 1]),
    ],
)
def test_parameters_are_json_or_text(run: Run, server: QueryServer, given: list[str], sent: list[object]) -> None:
    options = [word for value in given for word in ("--param", value)]
    run("sql", "SELECT " + ", ".join("?" * len(given)), *options)
    assert server.asked[-1]["parameters"] == sent


def test_a_truncated_answer_says_so_in_every_format(run: Run, server: QueryServer) -> None:
    for format in ("table", "json", "csv"):
        ran = run("sql", "SELECT * FROM range(5)", "--max-rows", "2", "--format", format)
        assert ran.code == 0
        assert ran.err.startswith("There are more rows than these 2.\nTry:   add --max-rows")
    assert run("sql", "SELECT * FROM range(2)", "--max-rows", "2").err == ""


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["SELECT 1", "--file", "q.sql"], "two queries"),
        (["--file", "missing.sql"], "cannot be read"),
        (["  "], "no query"),
        (["SELECT 1", "--json", "--format", "csv"], "--json and --format csv"),
        (["SELECT 1", "--output", "x.bin"], "needs a file format"),
        (["SELECT 1", "--output", "x.csv", "--format", "table"], "needs a file format"),
        (["SELECT ?", "--param", "a=1", "--param", "2"], "some do not"),
        (["SELECT 1", "--snapshot", "notes"], "not clear"),
        (["SELECT 1", "--snapshot", "notes=x"], "'x' is not a snapshot"),
        (["SELECT 1", "--as-of", "a=1", "--as-of", "a=2"], "not clear"),
    ],
)
def test_wrong_words_are_refused_here(run: Run, server: QueryServer, arguments: list[str], word: str) -> None:
    ran = run("sql", *arguments)
    assert ran.code == 1
    assert word in ran.err
    assert server.requests == []


def test_errors_and_exit_codes(run: Run, server: QueryServer) -> None:
    ran = run("sql", "SELEKT")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Error: ") and ran.err.endswith("Try:   correct the statement\n")
    server.troubles = [problem(504, "query_timeout", "it took too long", hint="--timeout")]
    ran = run("sql", "SELECT 1", "--json")
    assert ran.code == 3
    assert json.loads(ran.out)["error"]["code"] == "query_timeout"
    assert run("sql", "SELECT 1", "--output", "no/such/folder.csv").code == 1
    assert run("sql", "SELECT 1", "--max-rows", "0").code == 2


def test_without_a_server_it_says_so(run: Run) -> None:
    ran = run("sql", "SELECT 1")
    assert ran.code == 3
    assert "Try:   start it with `frazil up`" in ran.err


def test_ctrl_c_cancels_the_query(server: QueryServer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "frazil", "sql", SLOW], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert (process.returncode, told) == (130, "cancelled\n")
        assert server.cancelled.wait(10), "the server learns that nobody waits any more"
    finally:
        process.kill()
        process.wait()


def test_looking_back(run: Run, server: QueryServer) -> None:
    ran = run("tables", "history", "notes", "--limit", "5")
    assert f"{2**62 + 1} ←" in ran.out and "1,234" in ran.out and "append" in ran.out
    assert json.loads(run("tables", "history", "notes", "--json").out)["snapshots"][0]["current"] is True
    ran = run("tables", "rows", "notes", "a/b")
    assert "not committed yet" in ran.out and '"_id": "a/b"' in ran.out and "\x1b" not in ran.out
    assert json.loads(run("tables", "rows", "notes", "x", "--json").out)["versions"][1]["position"] == 2
    ran = run("tables", "changes", "notes", "5")
    assert '+  {"v": 1}' in ran.out and '-  {"v": 2}' in ran.out
    assert "1 added, 1 removed between 5 and 6; the first 2 are shown" in ran.out
    assert json.loads(run("tables", "changes", "notes", "5", "6", "--json").out)["query"] == "from=5&to=6&limit=100"
    assert run("tables", "history", "nope").code == 1


def test_export_hint_prints_the_commands(run: Run, server: QueryServer) -> None:
    ran = run("tables", "export-hint", "notes")
    assert ran.out.splitlines()[0] == "/w/t names version 3 of table notes"
    assert "duckdb     duckdb -c x" in ran.out
    assert json.loads(run("tables", "export-hint", "notes", "--json").out)["commands"]["spark"] == "spark.read"
