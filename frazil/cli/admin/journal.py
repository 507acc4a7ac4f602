"""`frazil journal`: what was committed and what failed."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, console, print_json


def journal(
    table: Annotated[str | None, typer.Option(help="Only entries of this table.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many entries.")] = 20,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Commits and failures, newest first."""
    with connected(data, config, url) as client:
        entries = client.journal(table=table, limit=limit)
    if as_json:
        print_json({"entries": entries})
        return
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
