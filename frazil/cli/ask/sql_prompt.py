"""The prompt of `frazil sql`: statements up to a semicolon, and commands with a dot."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from frazil.cli.ask.sql import print_written, run_query, warn_if_truncated
from frazil.cli.ask.sql_completion import CompletionNames, SqlCompleter, is_complete
from frazil.cli.listing import table_of
from frazil.cli.output import console, print_error
from frazil.cli.terminal_cells import printable, tame
from frazil.errors import FrazilError, InvalidInput

if TYPE_CHECKING:
    from frazil.client import Client

FORMATS = ("table", "json", "ndjson", "csv")
MAX_ROWS = 1_000
"""Rows that the prompt shows by default."""


@dataclass(frozen=True)
class Command:
    does: Callable[[Session, str], None]
    arguments: str
    help: str
    offers: tuple[str, ...] = ()


class Session:
    """Settings of the prompt, and its client."""

    def __init__(self, client: Client, words: dict[str, Any], format: str) -> None:
        self._client = client
        self._words = {**words, "max_rows": words.get("max_rows") or MAX_ROWS}
        self._format = format if format in FORMATS else "table"
        self._timer = False
        self._token = ""
        self.names = CompletionNames(client.tables)
        self.ended = False

    def enter(self, text: str) -> None:
        """Run the input. Errors are printed, and the prompt returns."""
        text = text.strip()
        try:
            if text.startswith("."):
                self._command(text)
            elif text.rstrip("; \n"):
                self._query(text)
        except FrazilError as error:
            sys.stdout.flush()
            tame(error)
            print_error(error, as_json=False)
        except KeyboardInterrupt:
            # The way out through the client closed the connection, and the server ends a query that nobody waits for.
            print("cancelled", file=sys.stderr)

    def _query(self, text: str) -> None:
        begun = time.monotonic()
        written = run_query(self._client, text, None, self._format, self._words)
        seconds = time.monotonic() - begun
        self._token = str(written.facts.get("token") or self._token)
        print_written(written, self._format)
        warn_if_truncated(written, f".max_rows {int(self._words['max_rows']) * 10}")
        if self._timer:
            facts = written.facts
            print(
                f"{seconds * 1000:.1f} ms, of which {float(facts.get('elapsed_ms') or 0):.1f} ms for the answer "
                f"and {float(facts.get('queued_ms') or 0):.1f} ms in the queue"
            )

    def _command(self, text: str) -> None:
        name, _, argument = text.rstrip("; ").partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            raise InvalidInput(f"{name} is not a command", code="no_command", hint=".help")
        command.does(self, argument.strip())

    def help(self, _: str) -> None:
        for name, command in COMMANDS.items():
            print(f"  {f'{name} {command.arguments}':<28} {command.help}")
        print("  SELECT …;                    Ask; over several lines, up to the semicolon. Ctrl-C cancels.")

    def list_tables(self, _: str) -> None:
        self.names.forget()
        found = self.names.columns()
        for name, columns in found.items():
            print(printable(f"{name}  ({', '.join(columns)})"))
        if not found:
            print("no tables yet")

    def schema(self, name: str) -> None:
        if not name:
            raise InvalidInput("of which table?", code="no_table", hint=".schema TABLE; .tables lists them")
        columns = (self._client.table(name).get("columns") or {}).items()
        table = table_of(("column", "type"), [[column, _type(declared)] for column, declared in columns])
        table.show_header = False
        console().print(table)

    def freshness(self, wanted: str) -> None:
        if wanted:
            self._words["freshness"] = _one_of(wanted, ("live", "committed"))
        print(f"freshness {self._words['freshness']}")

    def as_of(self, wanted: str) -> None:
        if wanted:
            self._words["as_of"] = None if wanted in ("now", "off") else wanted
        print(f"as of {self._words['as_of'] or 'now'}")

    def format(self, wanted: str) -> None:
        if wanted:
            self._format = _one_of(wanted, FORMATS)
        print(f"format {self._format}")

    def max_rows(self, wanted: str) -> None:
        if wanted:
            if not (wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= 1_000_000):
                raise InvalidInput(f"{wanted!r} is not a number of rows", code="bad_number", hint=".max_rows 10000")
            self._words["max_rows"] = int(wanted)
        print(f"at most {self._words['max_rows']:,} rows")

    def timer(self, wanted: str) -> None:
        self._timer = _one_of(wanted, ("on", "off")) == "on" if wanted else not self._timer
        print(f"timer {'on' if self._timer else 'off'}")

    def token(self, _: str) -> None:
        print(printable(self._token or "no answer yet"))

    def quit(self, _: str) -> None:
        self.ended = True


COMMANDS = {
    ".help": Command(Session.help, "", "This list."),
    ".tables": Command(Session.list_tables, "", "The tables and their columns."),
    ".schema": Command(Session.schema, "TABLE", "The columns of a table and their types."),
    ".freshness": Command(
        Session.freshness, "live|committed", "Everything received, or the newest snapshot.", ("live", "committed")
    ),
    ".as_of": Command(Session.as_of, "TIME|now", "Ask as it was then; ISO 8601 with a zone.", ("now",)),
    ".format": Command(Session.format, "|".join(FORMATS), "How answers are shown.", FORMATS),
    ".max_rows": Command(Session.max_rows, "N", "At most this many rows of an answer."),
    ".timer": Command(Session.timer, "[on|off]", "Say how long answers take.", ("on", "off")),
    ".token": Command(Session.token, "", "The whole token of the last answer, for --min-token."),
    ".quit": Command(Session.quit, "", "Leave; Ctrl-D does too."),
}


def prompt(client: Client, words: dict[str, Any], format: str, history_file: Path) -> None:
    """Ask and answer until the user leaves."""
    session = Session(client, words, format)
    offers = {name: command.offers for name, command in COMMANDS.items()}
    reader: PromptSession[str] = PromptSession(
        history=_history(history_file),
        completer=ThreadedCompleter(SqlCompleter(session.names, offers)),
        complete_while_typing=True,
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.document.text)),
        prompt_continuation=lambda width, line, wrapped: "...> ".rjust(width),
        enable_history_search=False,
    )
    print(f"frazil at {client.url}; end a query with ; and .help lists the commands")
    while not session.ended:
        try:
            text = reader.prompt("frazil> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        session.enter(text)


def _type(declared: Any) -> str:
    return str(declared.get("type") if isinstance(declared, dict) else declared)


def _one_of(wanted: str, known: tuple[str, ...]) -> str:
    if wanted not in known:
        raise InvalidInput(f"{wanted!r} is not known here", code="bad_argument", hint=f"one of {', '.join(known)}")
    return wanted


def _history(file: Path) -> History:
    """Queries hold names and values of people: nobody else may read them. Where none can be kept, none is."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
