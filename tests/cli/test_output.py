"""What verbs print, on terminals and streams of all kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from frazil.cli.listing import listing
from frazil.cli.output import Output
from frazil.cli.terminal_cells import styled
from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer

DESCRIPTION = "Grüße – 10 € … \U0001f600"


def _ran(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "frazil", *arguments]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_substitutes(server: ContractServer, encoding: str) -> None:
    server.tables["t"]["description"] = DESCRIPTION
    ran = _ran(encoding, "tables", "list")
    assert (ran.returncode, ran.stderr) == (0, b"")
    greeting = "Gr\\xfc\\xdfe" if encoding == "ascii" else "Grüße"
    assert f"{greeting} - 10 \\u20ac ... \\U0001f600" in ran.stdout.decode(encoding)


def test_json_stays_json_without_unicode(server: ContractServer) -> None:
    server.tables["t"]["description"] = DESCRIPTION
    ran = _ran("ascii", "tables", "list", "--json")
    assert json.loads(ran.stdout)["tables"][0]["description"] == DESCRIPTION
    refused = _ran("ascii", "tables", "create", "x", "--column", "größe", "--json")
    assert refused.returncode == 1
    assert "größe" in json.loads(refused.stdout)["error"]["message"]
    assert refused.stderr.startswith(b"Error: 'gr\\xf6\\xdfe' is not a column\n")


def test_unicode_is_written_as_it_is(run: Run, server: ContractServer) -> None:
    server.tables["t"]["description"] = DESCRIPTION
    assert DESCRIPTION in run("tables", "list").out
    assert DESCRIPTION in run("tables", "list", "--json").out


def test_an_answer_is_json_or_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).show({"a": 1}, lambda body: print("text", body["a"]))
    Output(as_json=False).show({"a": 1}, lambda body: print("text", body["a"]))
    Output(as_json=True).line([1], "one")
    Output(as_json=False).line([1], "one")
    assert capsys.readouterr().out.splitlines() == ['{"a": 1}', "text 1", "[1]", "one"]


def test_a_listing_has_numbers_to_the_right_and_obeys_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    listing(("name", ">rows", ""), [["[red]a[/]", "1", styled("[b]\x1b[2J", "green")], ["b", "1,000", None]])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "name        rows",
        "[red]a[/]      1  [b]\\x1b[2J",
        "b          1,000  null",
    ]
    listing(("name",), [], none="no [tables] yet")
    listing(("name",), [])
    assert capsys.readouterr().out == "no [tables] yet\n"


def test_a_listing_in_a_pipe_has_no_edge_to_fold_at(capsys: pytest.CaptureFixture[str]) -> None:
    listing(("text",), [["word " * 400]])
    assert len(capsys.readouterr().out.splitlines()) == 2
