from __future__ import annotations

import os
import pty
import re
import select
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from frazil.cli.ask.sql_completion import RESERVED, CompletionNames, SqlCompleter, is_complete
from frazil.cli.ask.sql_prompt import COMMANDS, prompt
from frazil.cli.options import SharedOptions
from frazil.client import Client
from frazil.errors import Unavailable
from tests.cli.contract_server import TOKEN
from tests.client.query_server import SLOW, QueryServer, serving

TABLES = [
    {"name": "orders", "columns": {"customer": "string", "amount": "decimal(12,2)", "at": "timestamp"}},
    {"name": "sales.refunds", "columns": {"reason": "string"}},
]
WORDS: dict[str, Any] = {"freshness": "live", "as_of": None, "max_rows": None}
Typed = Callable[..., tuple[str, str]]


@pytest.fixture
def server() -> Iterator[QueryServer]:
    with serving() as state:
        state.tables = {str(table["name"]): table for table in TABLES}
        yield state


@pytest.fixture
def typed(
    server: QueryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    """Type these keys at the prompt, then leave it; returns what was printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def type_(keys: str) -> tuple[str, str]:
        capsys.readouterr()
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            keyboard.send_text(keys + "\x04")
            with Client(server.url, TOKEN, retry_s=0.5) as client:
                prompt(client, dict(WORDS), "table", SharedOptions().state_folder() / "sql_history")
        told = capsys.readouterr()
        return told.out, told.err

    return type_


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("  \n", True),
        (".tables", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1 ; \n", True),
        ("SELECT ';", False),
        ("SELECT 'it''s;", False),
        ("SELECT ';';", True),
        ('SELECT 1 AS ";', False),
        ("SELECT $$ ; $$", False),
        ("SELECT $a$ $$; $a$;", True),
        ("SELECT 1 -- ;", False),
        ("SELECT 1; -- done", True),
        ("SELECT 1 /* ;", False),
        ("SELECT 1; /* done */", True),
        ("SELECT 1; SELECT", False),
    ],
)
def test_enter_ends_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def offered(text: str, *, tables: list[dict[str, Any]] = TABLES, asked: bool = False) -> list[str]:
    offers = {name: command.offers for name, command in COMMANDS.items()}
    completer = SqlCompleter(CompletionNames(lambda: tables), offers)
    event = CompleteEvent(completion_requested=asked)
    return [completion.text for completion in completer.get_completions(Document(text), event)]


def test_completion_of_names_and_words() -> None:
    assert offered("SELECT * FROM ") == []
    assert offered("SELECT * FROM ", asked=True) == ["orders", "sales.refunds"]
    assert offered("SELECT * FROM o") == ["orders"]
    assert offered("SELECT * FROM orders JOIN s") == ["sales.refunds"]
    assert offered("SELECT * FROM orders WHERE cu") == ["customer"]
    assert offered("SELECT * FROM orders WHERE _rec") == ["_received_at"]
    assert offered("SELECT * FROM orders WHERE reas") == [], "a column of a table that is not in the statement"
    assert offered("SELECT orders.am") == ["orders.amount"]
    assert offered("SELECT * FROM sales.refunds AS r WHERE r.re") == ["r.reason"]
    assert offered("SELECT * FROM orders WHERE at")[0] == '"at"', "bare, it is a word of SQL"
    assert offered("SELECT orders.at") == ["orders.at"]
    assert offered("sel") == ["select"]
    assert offered("SEL") == ["SELECT"]
    assert offered("") == []


def test_the_reserved_words_are_those_of_the_engine() -> None:
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    with duckdb.connect() as engine:
        assert {name for (name,) in engine.execute(query).fetchall()} == RESERVED


def test_completion_of_commands() -> None:
    assert offered(".f") == [".freshness", ".format"]
    assert offered(".freshness c") == ["committed"]
    assert offered(".schema o") == ["orders"]


def test_completion_survives_a_silent_server() -> None:
    calls = []

    def silent() -> list[dict[str, Any]]:
        calls.append(1)
        raise Unavailable("no")

    names = CompletionNames(silent)
    assert names.columns() == names.columns() == {}
    assert len(calls) == 1, "it is not asked at every key"


def test_a_query_over_several_lines(typed: Typed, server: QueryServer) -> None:
    out, err = typed("SELECT 'two\nlines' AS a,\n 42 AS b;\n")
    assert server.asked[-1]["sql"] == "SELECT 'two\nlines' AS a,\n 42 AS b;"
    assert r"two\nlines" in out and "1 row" in out and err == ""


def test_commands_change_what_is_asked(typed: Typed, server: QueryServer) -> None:
    out, err = typed(
        ".freshness committed\n.as_of 2026-11-01T00:00:00Z\n.max_rows 5\n.format csv\n.timer\nSELECT 1 AS a;\n"
        ".as_of now\n.timer off\n.token\nSELECT 2 AS a;\n"
    )
    assert err == ""
    first, second = server.asked
    assert first == {
        "sql": "SELECT 1 AS a;",
        "format": "csv",
        "freshness": "committed",
        "as_of": "2026-11-01T00:00:00Z",
        "max_rows": 5,
    }
    assert "as_of" not in second
    assert "a\r\n1\r\n" in out and "ms in the queue" in out and out.count("in the queue") == 1
    assert re.search(r"^fzt1\.\w{20,}$", out, re.MULTILINE)


def test_what_the_prompt_lists(typed: Typed) -> None:
    out, _ = typed(".help\n.tables\n.schema orders\n")
    for word in (*COMMANDS, "orders  (customer, amount, at)", "decimal(12,2)"):
        assert word in out


def test_errors_never_leave_the_prompt(typed: Typed, server: QueryServer) -> None:
    out, err = typed(
        ".nonsense\n.format xml\n.max_rows 0\n.schema\n.schema nope\nSELEKT;\n"
        "SELECT CAST(chr(27) || '[2J' AS INT);\n;\nSELECT 'still here' AS a;\n"
    )
    assert len(re.findall("^Error: ", err, re.MULTILINE)) == len(re.findall("^Try:   ", err, re.MULTILINE)) == 7
    assert "still here" in out and "\x1b" not in out + err
    server.troubles = ["cut"] * 50
    out, err = typed("SELECT 1;\n.freshness\n")
    assert "does not answer" in err and "freshness live" in out


def test_a_truncated_answer_names_the_command(typed: Typed) -> None:
    _, err = typed("SELECT * FROM range(2000);\n")
    assert err == "There are more rows than these 1,000.\nTry:   .max_rows 10000\n"


def test_ctrl_c_clears_the_line_and_quit_leaves(typed: Typed, server: QueryServer) -> None:
    out, _ = typed("SELECT garbage\x03SELECT 7 AS a;\n.quit\n")
    assert [asked["sql"] for asked in server.asked] == ["SELECT 7 AS a;"]
    assert "7" in out


def test_the_history_is_kept_and_private(typed: Typed, server: QueryServer, tmp_path: Path) -> None:
    typed("SELECT 11 AS a;\n")
    (file,) = (tmp_path / "state").rglob("sql_history")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    typed("\x1b[A\n")
    assert [asked["sql"] for asked in server.asked] == ["SELECT 11 AS a;"] * 2


def test_a_history_that_cannot_be_kept_is_no_obstacle(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder must be")
    out, err = typed("SELECT 11 AS a;\n")
    assert "11" in out and err == ""


class Terminal:
    """The command on a real terminal."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.screen, keyboard = pty.openpty()
        termios.tcsetwinsize(self.screen, (40, 200))
        # Not by a fork of this process: what other tests have loaded into it may have threads that do not survive one.
        command = ["setsid", "--ctty", sys.executable, "-m", "frazil", "sql"]
        self._process = subprocess.Popen(command, stdin=keyboard, stdout=keyboard, stderr=keyboard, env=environment)
        os.close(keyboard)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def wait_for(self, pattern: bytes) -> None:
        deadline = time.monotonic() + 120
        while not re.search(pattern, self.seen):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not appear in {self.seen!r}"
            if select.select([self.screen], [], [], min(left, 0.5))[0]:
                try:
                    self.seen += os.read(self.screen, 65536)
                except OSError as error:
                    raise AssertionError(f"it ended before {pattern!r} appeared: {self.seen!r}") from error

    def forget(self) -> None:
        self.seen = b""

    def exit_code(self) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            code = self._process.poll()
            if code is not None:
                return code
            if select.select([self.screen], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.screen, 65536)
                except OSError:
                    continue
        self._process.kill()
        self._process.wait()
        raise AssertionError("it did not end")


def test_a_real_terminal(server: QueryServer, tmp_path: Path) -> None:
    environment = {
        **os.environ, "FRAZIL_URL": server.url, "FRAZIL_TOKEN": TOKEN, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody here tells where the cursor is
    }  # fmt: skip
    terminal = Terminal(environment)
    try:
        terminal.wait_for(rb"frazil>")
        terminal.type(b"SELECT 6 * 7 AS answer, 'a' || chr(27) || ']0;x' AS trick;\r")
        terminal.wait_for(rb"42.*\\x1b\]0;x")
        assert b"\x1b]0;x" not in terminal.seen
        terminal.wait_for(rb"1 row(?s:.)*frazil>")
        terminal.forget()
        terminal.type(f"{SLOW};\r".encode())
        deadline = time.monotonic() + 120
        while not any(SLOW.encode() in body for *_, body in server.requests) and time.monotonic() < deadline:
            time.sleep(0.02)
        terminal.type(b"\x03")
        terminal.wait_for(rb"cancelled(?s:.)*frazil>")
        assert server.cancelled.wait(10), "the server learns that nobody waits any more"
        terminal.type(b"SELECT 5 * 5 AS after_it;\r")
        terminal.wait_for(rb"25")
        terminal.type(b"\x04")
        assert terminal.exit_code() == 0
    finally:
        os.close(terminal.screen)
