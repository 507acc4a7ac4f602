"""Answers to SQL as tables on a terminal: columns with names and types, rows, and a line about their source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frazil.cli.output import age, console
from frazil.cli.terminal_cells import cell, printable

if TYPE_CHECKING:
    from rich.table import Table

_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|LONG|DECIMAL(\([\d, ]+\))?|DOUBLE|FLOAT|REAL|BIGNUM", re.I)


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


def print_answer(answer: Mapping[str, Any]) -> None:
    """The answer as a table on standard output, with what it was read from below."""
    out = console()
    out.print(grid(answer.get("columns") or (), answer.get("rows") or ()))
    out.print(facts_line(answer), style="dim", markup=False, soft_wrap=True)
