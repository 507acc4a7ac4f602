"""`frazil journal`: commits and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import Output, console
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


@verb
def journal(
    client: Client,
    output: Output,
    table: Annotated[str | None, typer.Option(help="Only entries of this table.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many entries.")] = 20,
) -> None:
    """Commits and failures, newest first."""
    entries = client.journal(table=table, limit=limit)
    output.show({"entries": entries}, lambda _: _print_entries(entries))


def _print_entries(entries: list[dict[str, Any]]) -> None:
    out = console()
    for entry in entries:
        rest = {key: value for key, value in entry.items() if key not in ("at", "kind", "table")}
        style = "red" if entry.get("kind") in ("failure", "error") else "green"
        words = "  ".join(f"{key}={value}" for key, value in rest.items() if value not in (None, ""))
        when = str(entry.get("at", ""))[:23]
        out.print(f"[dim]{when}[/] [{style}]{entry.get('kind')}[/] {entry.get('table') or ''}", end="  ")
        out.print(words, markup=False, soft_wrap=True)
    if not entries:
        out.print("nothing yet", style="dim")
