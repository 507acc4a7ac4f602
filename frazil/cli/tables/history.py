"""`frazil tables history|loads|rows|changes|export-hint`: the past of a table, and access for other tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output
from frazil.cli.terminal_cells import tame
from frazil.cli.verb import verb
from frazil.errors import FrazilError, InvalidInput

if TYPE_CHECKING:
    from frazil.client import Client

Name = Annotated[str, typer.Argument(metavar="TABLE")]


@verb
def history(
    client: Client,
    output: Output,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="At most this many snapshots.")] = 20,
) -> None:
    """The snapshots of a table, newest first."""
    snapshots = client.history(name, limit=limit)
    output.show({"table": name, "snapshots": snapshots}, lambda _: _print_snapshots(snapshots))


def _print_snapshots(snapshots: list[dict[str, Any]]) -> None:
    lines = [
        [
            f"{snapshot.get('snapshot_id')}{' ←' if snapshot.get('current') else ''}",
            str(snapshot.get("committed_at") or "")[:23],
            str(snapshot.get("operation") or ""),
            f"{int(snapshot.get('added_rows') or 0):,}",
            f"{int(snapshot.get('total_rows') or 0):,}",
        ]
        for snapshot in snapshots
    ]
    listing(("snapshot", "committed at", "operation", ">added", ">rows"), lines, none="nothing is committed yet")


@verb
def loads(
    client: Client,
    output: Output,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="At most this many loads.")] = 20,
) -> None:
    """The bulk loads of a table, newest first."""
    found = client.loads(name, limit=limit)
    output.show({"table": name, "loads": found}, lambda _: print_loads(found))


def print_loads(found: list[dict[str, Any]]) -> None:
    lines = [
        [
            str(load.get("id")),
            str(load.get("source")),
            str(load.get("job")),
            str(load.get("state")),
            f"{int(load.get('rows') or 0):,}",
            f"{int(load.get('files') or 0):,}",
            str(load.get("began_at") or "")[:19],
            "" if load.get("seconds") is None else f"{load['seconds']:.1f}",
            str(load.get("snapshot_id") or ""),
        ]
        for load in found
    ]
    headings = ("load", "source", "job", "state", ">rows", ">files", "began at", ">seconds", "snapshot")
    listing(headings, lines, none="nothing was loaded into it")


def print_lineage(found: list[dict[str, Any]]) -> None:
    lines = [
        [
            str(entry.get("source")),
            str(entry.get("job")),
            f"{entry['loads']:,}" if "loads" in entry else "",
            f"{entry['rows']:,}" if "rows" in entry else "",
            str(entry.get("last_loaded_at") or "")[:19],
        ]
        for entry in found
    ]
    listing(("source", "job", ">loads", ">rows", "last at"), lines, none="nothing has come into it yet")


@verb
def rows(
    options: SharedOptions,
    output: Output,
    name: Name,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of the event.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="For an entity: its key instead of an id.")
    ] = None,
) -> None:
    """The versions of one row, oldest first, by the id of its events or the key of an entity."""
    if (id is None) == (not key):
        raise InvalidInput(
            "name the row by its id, or by its key", code="no_row", hint=f"frazil tables rows {name} --key COLUMN=VALUE"
        )
    with options.connect() as client:
        try:
            answer = client.row_history(name, id) if id is not None else client.key_history(name, **_key(key or []))
        except FrazilError as error:
            tame(error)
            raise
    output.show(answer, _print_versions)


def _print_versions(answer: dict[str, Any]) -> None:
    lines = [
        [
            str(version.get("position")),
            str(version.get("committed_in") or "not committed yet"),
            str(version.get("committed_at") or "")[:23],
            _row(version.get("row")),
        ]
        for version in answer.get("versions") or ()
    ]
    listing((">position", "snapshot", "committed at", "row"), lines, none="nothing")


@verb
def changes(
    client: Client,
    output: Output,
    name: Name,
    since: Annotated[int, typer.Argument(metavar="FROM", help="A snapshot.")],
    until: Annotated[int | None, typer.Argument(metavar="[TO]", help="A later one; else the newest.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many rows.")] = 100,
) -> None:
    """What changed between two snapshots."""
    try:
        answer = client.changes(name, since, until, limit=limit)
    except FrazilError as error:
        tame(error)
        raise
    output.show(answer, _print_changes)


def _print_changes(answer: dict[str, Any]) -> None:
    signs = {"added": "+", "removed": "-"}
    lines = [[signs.get(str(row.get("change")), "?"), _row(row.get("row"))] for row in answer.get("rows") or ()]
    listing(("", "row"), lines, none="nothing")
    more = f"; the first {len(lines):,} are shown, --limit shows more" if answer.get("truncated") else ""
    print(
        f"{answer.get('added', 0):,} added, {answer.get('removed', 0):,} removed "
        f"between {answer.get('from')} and {answer.get('to')}{more}"
    )


@verb
def export_hint(client: Client, output: Output, name: Name) -> None:
    """Let other tools open the current state of the table by its folder; run it again after commits."""
    output.show(client.export_hint(name), _print_hint)


def _print_hint(answer: dict[str, Any]) -> None:
    print(f"{answer.get('location')} names version {answer.get('version')} of table {answer.get('table')}")
    for tool, command in (answer.get("commands") or {}).items():
        print(f"  {tool:<10} {command}")


def _key(given: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in given]
    for column, equals, _ in parts:
        if not equals or not column:
            raise InvalidInput(f"{column!r} is not a key", code="bad_key", hint="write COLUMN=VALUE, as in --key id=7")
    return {column: value for column, _, value in parts}


def _row(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
