"""How values of a table are shown on a terminal: nothing in them may steer it, and every digit is there."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frazil.cli.output import age, console
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

MAX_CELL_CHARACTERS = 2_000
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"
"""Part of the spelling of many words and emoji; all other format characters can turn or hide what follows them."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|LONG|DECIMAL(\([\d, ]+\))?|DOUBLE|FLOAT|REAL|BIGNUM", re.I)


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character that a terminal would obey, or that hides others, spelled out.

    Those in `keep` stay: line breaks and tabs of a whole file are no trick.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in keep else _spelled(character) for character in text)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _STEERING or character in _JOINERS:
        return character
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def tame(error: FrazilError) -> None:
    """Make the error fit for a terminal: its words may quote a value or a statement."""
    error.message = printable(error.message, keep="\n")
    error.hint = printable(error.hint, keep="\n")


def cell(value: Any) -> Text:
    from rich.text import Text

    if value is None:
        return Text("null", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(written) > MAX_CELL_CHARACTERS:
        written = written[:MAX_CELL_CHARACTERS] + "…"
    return Text(printable(written))


def grid(columns: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> Table:
    """The rows of an answer under their names and types; numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        kind = str(column.get("type") or "")
        heading = Text.assemble(
            (printable(str(column.get("name"))), "bold"), "\n", (printable(kind.lower()), "dim not bold")
        )
        table.add_column(heading, justify="right" if _NUMBER.fullmatch(kind) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table


def facts_line(answer: Mapping[str, Any]) -> str:
    """How many rows of which state in what time: `2 rows · orders at 7261 and 3 live rows, 4.0 s old · …`."""
    count = int(answer.get("row_count") or 0)
    words = [f"{count:,} {'row' if count == 1 else 'rows'}"]
    for table, cut in (answer.get("snapshots") or {}).items():
        live = int(cut.get("live_rows") or 0)
        state = f"{table} at {cut['snapshot_id']}" if cut.get("snapshot_id") is not None else f"{table} not committed"
        more = f" and {live:,} live {'row' if live == 1 else 'rows'}" if live else ""
        words.append(f"{state}{more}, {age(cut.get('age_seconds'))} old")
    if answer.get("snapshots"):
        words.append(f"token {str(answer.get('token'))[:13]}…")
    words.append(f"{float(answer.get('elapsed_ms') or 0.0):.1f} ms")
    return printable(" · ".join(words))


def show(answer: Mapping[str, Any]) -> None:
    """The answer as a table on standard output, with what it was read from below."""
    out = console()
    if not out.is_terminal:
        out.width = 100_000  # a file or a pipe has no edge to fold at
    out.print(grid(answer.get("columns") or (), answer.get("rows") or ()))
    out.print(facts_line(answer), style="dim", markup=False, soft_wrap=True)
