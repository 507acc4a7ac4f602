"""`frazil status`: how the parts and the tables fare."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, age, connected, console, print_json
from frazil.errors import Unavailable

if TYPE_CHECKING:
    from rich.table import Table

COLORS = {"ok": "green", "starting": "yellow"}
_SEARCH_COLORS = {"ok": "green", "opening": "yellow", "no_artifact": "dim"}


def status(data: Data = None, config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """How the parts and tables fare. Exit code 0 when all is well or still starting, 1 when degraded, 3 when down."""
    with connected(data, config, url, retry_s=0.0, timeout_s=10.0) as client:
        try:
            body = client.status()
        except Unavailable as error:
            error.message = f"frazil is not running: {error.message}"
            error.hint = "start it with `frazil up`, or see with `frazil doctor` what is wrong"
            raise
    if as_json:
        print_json(body)
    else:
        show(body)
    raise typer.Exit(1 if body.get("status") == "degraded" else 0)


def show(body: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    parts = Table("part", "state", "", box=None, pad_edge=False, header_style="dim")
    for name, part in body.get("parts", {}).items():
        state = str(part.get("status", "?"))
        notes = [str(part["reason"])] if part.get("reason") else []
        if part.get("last_commit_age_seconds") is not None:
            notes.append(f"last commit {age(part['last_commit_age_seconds'])} ago")
        parts.add_row(name, _colored(state), escape("; ".join(notes)))
    out.print(parts)
    for job in body.get("jobs") or []:
        told = job.get("progress") or {}
        words = [f"{word} {told[word]:,} of {told.get('of', 0):,}" for word in told if word not in ("of", "begun")]
        out.print(
            f"{job['state']}: {job['kind']} {job['subject'].removeprefix('main.')} {' '.join(words)}", markup=False
        )
    tables = body.get("tables", {})
    if not tables:
        out.print("\nno tables yet", style="dim")
        return
    listing = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("table", "rows", "behind", "by", "dead", "last commit", ""):
        listing.add_column(heading, justify="left" if heading in ("table", "") else "right")
    for name, table in tables.items():
        problem = table.get("last_error") or table.get("error") or {}
        commit = _age_of(table.get("last_commit_at"))
        lag = table.get("lag") or {}
        listing.add_row(
            name,
            _number(table.get("rows")),
            _number(lag.get("events")),
            age(lag.get("seconds")),
            f"[red]{table['dead_letters']:,}[/]" if table.get("dead_letters") else "–",
            f"[red]{commit}[/]" if problem else commit,
            f"[red]{escape(str(problem.get('message')))}[/]" if problem else "",
        )
    out.print()
    out.print(listing)
    if body.get("search"):
        out.print()
        out.print(_searches(body["search"]))


def _searches(shelves: list[dict[str, Any]]) -> Table:
    """What each searched table is answered from."""
    from rich.markup import escape
    from rich.table import Table

    listing = Table("searched", "state", "generation", box=None, pad_edge=False, header_style="dim")
    listing.add_column("built", justify="right")
    listing.add_column("fresh", justify="right")
    listing.add_column("")
    for one in shelves:
        notes = [str(one["trouble"]["reason"])] if one["trouble"] else []
        notes += [f"{len(one['draining'])} draining"] if one["draining"] else []
        listing.add_row(
            one["shelf"],
            f"[{_SEARCH_COLORS.get(one['state'], 'red')}]{one['state'].replace('_', ' ')}[/]",
            one["generation"] or "–",
            age(one["age_seconds"]),
            _number(one["fresh_documents"]),
            escape("; ".join(notes)),
        )
    return listing


def _age_of(at: str | None) -> str:
    return age((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()) if at else "–"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def _colored(state: str) -> str:
    return f"[{COLORS.get(state, 'red')}]{state}[/]"
