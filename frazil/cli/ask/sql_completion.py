"""Completion at the SQL prompt: the end of a statement, and the names and keywords that may come next."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from frazil.errors import FrazilError

KEYWORDS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET AS ON USING JOIN LEFT RIGHT FULL INNER CROSS ASOF LATERAL
    UNION ALL INTERSECT EXCEPT DISTINCT WITH RECURSIVE CASE WHEN THEN ELSE END AND OR NOT IN IS NULL BETWEEN LIKE ILIKE
    EXISTS ASC DESC NULLS FIRST LAST OVER PARTITION WINDOW QUALIFY ROWS RANGE FILTER CAST TRY_CAST INTERVAL DATE
    TIMESTAMP TRUE FALSE VALUES UNNEST COUNT SUM AVG MIN MAX COALESCE DATE_TRUNC NOW FOR VERSION OF
""".split()
RESERVED = frozenset(
    """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check
    collate collation column columns concurrently constraint create cross default deferrable desc describe distinct do
    else end except false fetch for foreign freeze from full generated glob group having ilike in initially inner
    intersect into is isnull join lambda lateral leading left like limit map natural not notnull null offset on only or
    order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning right
    select semi show similar some struct summarize symmetric table tablesample then to trailing true try_cast union
    unique unpack unpivot using variadic verbose when where window with
    """.split()
)
"""Keywords that DuckDB does not accept as a bare column name; `at` is a common column name."""
SYSTEM_COLUMNS = ("_seq", "_id", "_op", "_ts", "_received_at", "_actor", "_source", "_workspace")
KEPT_SECONDS = 30.0

_WORD = re.compile(r"[\w.]*\Z")
_NAMES_A_TABLE = re.compile(r"\b(?:from|join)\s+[\w.]*\Z", re.IGNORECASE)
_PIECES = re.compile(
    r"""
      '(?:[^']|'')*(?:'|\Z)                    # a text
    | "(?:[^"]|"")*(?:"|\Z)                    # a name
    | \$(?P<tag>\w*)\$ .*? (?:\$(?P=tag)\$|\Z) # a text in dollars
    | --[^\n]*                                 # comments
    | /\*.*?(?:\*/|\Z)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def is_complete(text: str) -> bool:
    """Whether Enter ends the input: a command with a dot, or a statement up to its semicolon."""
    if not text.strip() or text.lstrip().startswith("."):
        return True
    last = ""
    for piece in _PIECES.finditer(text):
        word = piece[0]
        if not word.isspace() and not word.startswith(("--", "/*")):
            last = word
    return last == ";"


@dataclass
class CompletionNames:
    """The tables and their columns, asked for again when they are older than half a minute.

    A server that does not answer costs the completion, not the prompt.
    """

    tables: Callable[[], Sequence[Mapping[str, Any]]]
    _known: dict[str, list[str]] = field(default_factory=dict)
    _read_at: float = field(default=float("-inf"))
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def columns(self) -> dict[str, list[str]]:
        """The columns of every table, by its name."""
        with self._asking:
            if time.monotonic() - self._read_at > KEPT_SECONDS:
                try:
                    found = self.tables()
                    self._known = {str(table["name"]): list(table.get("columns") or {}) for table in found}
                except FrazilError:
                    pass  # the next query shows the error; until then the known names are offered
                self._read_at = time.monotonic()
            return self._known

    def forget(self) -> None:
        self._read_at = float("-inf")


class SqlCompleter(Completer):
    """Tables after FROM and JOIN; else the columns of the tables in the statement, then all tables and keywords."""

    def __init__(self, names: CompletionNames, commands: Mapping[str, Sequence[str]]) -> None:
        """`commands` are those with a dot, and what may follow each."""
        self._names = names
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("."):
            yield from self._command(before.lstrip())
            return
        found = _WORD.search(before)
        word = found[0] if found else ""
        if not word and not complete_event.completion_requested:
            return
        yield from _matching(word, self._words(document.text, before, word))

    def _command(self, before: str) -> Iterator[Completion]:
        command, space, rest = before.partition(" ")
        if not space:
            yield from _matching(command, self._commands)
        elif command == ".schema":
            yield from _matching(rest, self._names.columns())
        else:
            yield from _matching(rest, self._commands.get(command, ()))

    def _words(self, text: str, before: str, word: str) -> Iterator[str]:
        tables = self._names.columns()
        if _NAMES_A_TABLE.search(before):
            yield from tables
            return
        table, dot, _ = word.rpartition(".")
        if dot:
            for column in self._columns_of(table, text, tables):
                yield f"{table}.{column}"
        for name in _mentioned(text, tables):
            yield from (f'"{column}"' if column in RESERVED else column for column in tables[name])
            yield from SYSTEM_COLUMNS
        yield from tables
        yield from KEYWORDS

    def _columns_of(self, name: str, text: str, tables: Mapping[str, list[str]]) -> list[str]:
        """The columns behind a table's name, or behind the short name that the statement gives it."""
        if name not in tables:
            given = re.search(rf"([\w.]+)\s+(?:as\s+)?{re.escape(name)}\b", text, re.IGNORECASE)
            name = given[1] if given else name
        return [*tables[name], *SYSTEM_COLUMNS] if name in tables else []


def _mentioned(text: str, tables: Iterable[str]) -> list[str]:
    words = set(re.findall(r"[\w.]+", text))
    return [name for name in tables if name in words]


def _matching(word: str, offered: Iterable[str]) -> Iterator[Completion]:
    """Those that begin as the word does, each once. Keywords follow the case in which the word was begun."""
    seen = set()
    for text in offered:
        if text.lower().lstrip('"').startswith(word.lower()) and text not in seen:
            seen.add(text)
            written = text.lower() if text.isupper() and word and word.islower() else text
            yield Completion(written, start_position=-len(word))
