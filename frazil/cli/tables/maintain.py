"""Maintenance verbs: `frazil tables health`, `frazil compact|expire|orphans|retention|purge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.output import Output, counted
from frazil.cli.terminal_cells import styled
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


Name = Annotated[str, typer.Argument(metavar="TABLE")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="How many seconds to wait for the pipeline.")]


@verb
def health(
    client: Client,
    output: Output,
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
) -> None:
    """Files, snapshots and metadata of each table, and what to do about them."""
    found = client.tables_health() if name is None else [client.table_health(name)]
    output.show({"tables": found} if name is None else found[0], lambda _: _print_health(found))


@verb
def compact(
    client: Client,
    output: Output,
    table: Name,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Order all rows by these columns, as in customer,at.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
) -> None:
    """Make few large files of many small ones; readers and commits go on meanwhile."""
    columns = [column.strip() for column in (sort or "").split(",") if column.strip()]
    output.show(client.maintain(table, "compact", sort=columns, dry_run=dry_run, timeout_s=timeout), _print_steps)


@verb
def expire(client: Client, output: Output, table: Name, dry_run: DryRun = False, timeout: Patience = 3600.0) -> None:
    """Let go of old snapshots and of the files that only they need; tagged ones stay."""
    output.show(client.maintain(table, "expire", dry_run=dry_run, timeout_s=timeout), _print_steps)


@verb
def orphans(client: Client, output: Output, table: Name, dry_run: DryRun = False, timeout: Patience = 3600.0) -> None:
    """Remove files that no snapshot names, once they are old enough."""
    answer = client.maintain(table, "remove_orphans", dry_run=dry_run, timeout_s=timeout)
    output.show(answer, _print_orphans if dry_run else _print_steps)


@verb
def retention(
    client: Client,
    output: Output,
    table: Name,
    apply: Annotated[bool, typer.Option("--apply", help="Remove the rows; without it only the plan is shown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as without --apply.")] = False,
    at: Annotated[str | None, typer.Option(metavar="DAY", help="Plan for another day, as in 2030-01-31.")] = None,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Also expire younger snapshots that hold such rows: no way back to them."),
    ] = False,
    timeout: Patience = 3600.0,
) -> None:
    """Rows beyond the table's retention_years: what would be removed, and with --apply its removal."""
    only_plan = dry_run or not apply
    answer = client.maintain(
        table, "retention", dry_run=only_plan, all_snapshots=all_snapshots, at=at, timeout_s=timeout
    )
    output.show(answer, lambda _: _print_retention_plan(answer, table) if only_plan else _print_steps(answer))


@verb
def purge(
    client: Client,
    output: Output,
    table: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it only what would go is shown.")] = False,
) -> None:
    """Delete a dropped table for good: rows, history, and what is on the bus. Nothing brings it back."""
    answer = client.purge_table(table, dry_run=not yes)
    output.show(answer, lambda _: _print_purge(answer, table))


def _print_health(tables: list[dict[str, Any]]) -> None:
    headings = (
        "table",
        ">files",
        ">small",
        ">average",
        ">snapshots",
        ">manifests",
        ">metadata",
        "last compaction",
        "verdict",
    )
    listing(headings, [_health_row(table) for table in tables], none="no tables yet")


def _health_row(table: dict[str, Any]) -> list[Any]:
    if "error" in table:
        return [str(table.get("table")), *[""] * 7, styled(str(table["error"].get("message")), "red")]
    return [
        str(table["table"]),
        f"{table['files']:,}",
        f"{table['small_files']:,}",
        _size(table["average_bytes"]),
        f"{table['snapshots']:,}",
        f"{table['manifests']:,}",
        _size(table["metadata_bytes"]),
        str(table["last_compaction_at"] or "never")[:19],
        styled(table["verdict"], "green" if table["verdict"] == "good" else "yellow"),
    ]


def _print_orphans(answer: dict[str, Any]) -> None:
    _print_steps(answer)
    for file in answer["files"]:
        print(f"  {file['path']}  {_size(file['bytes'])}  {file['modified_at'][:19]}")
    print(f"{counted(answer['orphans'], 'file')}, {_size(answer['bytes'])}")


def _print_retention_plan(answer: dict[str, Any], table: str) -> None:
    plan = answer["retention"]
    for part in plan["partitions"]:
        size = f"{counted(part['rows'], 'row')}  {counted(part['files'], 'file')}  {_size(part['bytes'])}"
        print(f"  {part['begins'][:10]} to {part['ends'][:10]}  {size}")
    size = f"{counted(plan['rows'], 'row')} in {counted(plan['files'], 'file')} ({_size(plan['bytes'])})"
    print(f"{size} are from before {plan['cut'][:10]}; by {plan['column']}, kept {plan['retention_years']:g} years")
    print(f"{counted(len(plan['expiring_snapshots']), 'snapshot')} with such rows will go too")
    if plan["holding_snapshots"]:
        tags = f", the tags {', '.join(plan['holding_tags'])} among them" if plan["holding_tags"] else ""
        print(f"{len(plan['holding_snapshots']):,} younger ones hold such rows and stay{tags}: see --all-snapshots")
    if plan["rows"] or plan["expiring_snapshots"]:
        print(f"to remove them: frazil retention {table} --apply")


def _print_purge(answer: dict[str, Any], table: str) -> None:
    for one in answer["tables"]:
        print(f"  {one['hidden']}  {counted(one['files'], 'file')}  {_size(one['bytes'])}  {one['location']}")
    print("purged" if answer["purged"] else f"to delete this for good: frazil purge {table} --yes")


def _print_steps(answer: dict[str, Any]) -> None:
    steps = answer.get("steps", answer.get("plan")) or ()
    for step in steps:
        rest = {key: value for key, value in step.items() if key not in ("what", "table", "why")}
        words = "  ".join(f"{key}={value}" for key, value in rest.items())
        print(f"{step['what']} {step['table']} ({step['why']})  {words}".rstrip())
    if not steps:
        print("nothing to do")


def _size(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
