"""`frazil status`: the state of parts and tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.listing import table_of
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, age, console
from frazil.cli.terminal_cells import styled
from frazil.cli.verb import verb
from frazil.errors import Unavailable

if TYPE_CHECKING:
    from rich.text import Text

COLORS = {"ok": "green", "starting": "yellow"}
_SEARCH_COLORS = {"ok": "green", "opening": "yellow", "no_artifact": "dim"}


@verb
def status(options: SharedOptions, output: Output) -> None:
    """Show the state of parts and tables. Exit code 0: ok or starting, 1: degraded, 3: down."""
    with options.connect(retry_s=0.0, timeout_s=10.0) as client:
        try:
            body = client.status()
        except Unavailable as error:
            error.message = f"frazil is not running: {error.message}"
            error.hint = "start it with `frazil up`, or see with `frazil doctor` what is wrong"
            raise
    output.show(body, _print_status)
    raise typer.Exit(1 if body.get("status") == "degraded" else 0)


def _print_status(body: dict[str, Any]) -> None:
    out = console()
    parts = [[name, _state(part), _part_notes(part)] for name, part in body.get("parts", {}).items()]
    out.print(table_of(("part", "state", ""), parts))
    for job in body.get("jobs") or []:
        out.print(_job_line(job), markup=False)
    tables = body.get("tables", {})
    if not tables:
        out.print("\nno tables yet", style="dim")
        return
    out.print()
    headings = ("table", ">rows", ">behind", ">by", ">dead", ">last commit", "")
    out.print(table_of(headings, [_table_row(name, table) for name, table in tables.items()]))
    if body.get("search"):
        out.print()
        shelves = [_shelf_row(shelf) for shelf in body["search"]]
        out.print(table_of(("searched", "state", "generation", ">built", ">fresh", ""), shelves))


def _state(part: dict[str, Any]) -> Text:
    state = str(part.get("status", "?"))
    return styled(state, COLORS.get(state, "red"))


def _part_notes(part: dict[str, Any]) -> str:
    notes = [str(part["reason"])] if part.get("reason") else []
    if part.get("last_commit_age_seconds") is not None:
        notes.append(f"last commit {age(part['last_commit_age_seconds'])} ago")
    return "; ".join(notes)


def _job_line(job: dict[str, Any]) -> str:
    done = job.get("progress") or {}
    words = [f"{word} {done[word]:,} of {done.get('of', 0):,}" for word in done if word not in ("of", "begun")]
    return f"{job['state']}: {job['kind']} {job['subject'].removeprefix('main.')} {' '.join(words)}"


def _table_row(name: str, table: dict[str, Any]) -> list[Any]:
    problem = table.get("last_error") or table.get("error") or {}
    commit = _age_of(table.get("last_commit_at"))
    lag = table.get("lag") or {}
    return [
        name,
        _number(table.get("rows")),
        _number(lag.get("events")),
        age(lag.get("seconds")),
        styled(f"{table['dead_letters']:,}", "red") if table.get("dead_letters") else "–",
        styled(commit, "red" if problem else ""),
        styled(str(problem.get("message")), "red") if problem else "",
    ]


def _shelf_row(shelf: dict[str, Any]) -> list[Any]:
    """The artifact that a table is searched from, and its state."""
    notes = [str(shelf["trouble"]["reason"])] if shelf["trouble"] else []
    notes += [f"{len(shelf['draining'])} draining"] if shelf["draining"] else []
    return [
        shelf["shelf"],
        styled(shelf["state"].replace("_", " "), _SEARCH_COLORS.get(shelf["state"], "red")),
        shelf["generation"] or "–",
        age(shelf["age_seconds"]),
        _number(shelf["fresh_documents"]),
        "; ".join(notes),
    ]


def _age_of(at: str | None) -> str:
    return age((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()) if at else "–"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"
