"""Listings: rows under headings, in the one style of all verbs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from frazil.cli.output import console
from frazil.cli.terminal_cells import cell

if TYPE_CHECKING:
    from rich.table import Table


def listing(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, none: str = "", unbroken: int = 0) -> None:
    """Print the rows, or `none` where there are none. The options are those of `table_of`."""
    table = table_of(headings, rows, unbroken=unbroken)
    if table.row_count:
        console().print(table)
    elif none:
        console().print(none, style="dim", markup=False, soft_wrap=True)


def table_of(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, unbroken: int = 0) -> Table:
    """The rows as a table. A heading that begins with > is of numbers: its column goes to the right.

    On a narrow terminal cells are folded, those of the first `unbroken` columns last. A cell is a value or a `Text`.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.lstrip(">"), justify=justify, overflow="fold", no_wrap=number < unbroken)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table
