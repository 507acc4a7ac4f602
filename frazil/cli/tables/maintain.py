"""Maintenance verbs: `frazil tables health`, `frazil compact|expire|orphans|retention|purge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.job import Render, run_job
from frazil.cli.listing import listing
from frazil.cli.output import Output, counted
from frazil.cli.terminal_cells import styled
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


Name = Annotated[str, typer.Argument(metavar="TABLE")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the pipeline.")]


@verb
def health(
    client: Client,
    output: Output,
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
) -> None:
    """Show files, snapshots and metadata of each table, with a verdict."""
    found = client.maintenance.tables_health() if name is None else [client.maintenance.table_health(name)]
    output.show({"tables": found} if name is None else found[0], lambda _: _print_health(found))


@verb
def compact(
    client: Client,
    output: Output,
    table: Name,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Sort all rows by these columns, as in customer,at.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
) -> None:
    """Rewrite many small files as few large ones; readers and commits continue."""
    columns = [column.strip() for column in (sort or "").split(",") if column.strip()]
    _maintain(client, output, table, "compact", dry_run=dry_run, timeout=timeout, sort=columns)


@verb
def expire(client: Client, output: Output, table: Name, dry_run: DryRun = False, timeout: Patience = 3600.0) -> None:
    """Remove old snapshots and the files that only they use; tagged snapshots stay."""
    _maintain(client, output, table, "expire", dry_run=dry_run, timeout=timeout)


@verb
def orphans(client: Client, output: Output, table: Name, dry_run: DryRun = False, timeout: Patience = 3600.0) -> None:
    """Remove files that no snapshot refers to, when they are old enough."""
    _maintain(client, output, table, "remove_orphans", dry_run=dry_run, timeout=timeout, print_plan=_print_orphans)


@verb
def retention(
    client: Client,
    output: Output,
    table: Name,
    apply: Annotated[bool, typer.Option("--apply", help="Remove the rows; without it only show the plan.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as without --apply.")] = False,
    at: Annotated[str | None, typer.Option(metavar="DAY", help="Plan for another day, as in 2030-01-31.")] = None,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Also expire younger snapshots that hold such rows, permanently."),
    ] = False,
    timeout: Patience = 3600.0,
) -> None:
    """Show the rows older than retention_years of the table; with --apply remove them."""
    _maintain(
        client,
        output,
        table,
        "retention",
        dry_run=dry_run or not apply,
        timeout=timeout,
        all_snapshots=all_snapshots or None,
        at=at,
        print_plan=lambda answer: _print_retention_plan(answer, table),
    )


@verb
def purge(
    client: Client,
    output: Output,
    table: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it only show the plan.")] = False,
) -> None:
    """Delete a dropped table permanently: rows, history, and its events on the bus."""
    answer = client.tables.purge(table, dry_run=not yes)
    output.show(answer, lambda _: _print_purge(answer, table))


def _maintain(
    client: Client,
    output: Output,
    table: str,
    what: str,
    *,
    dry_run: bool,
    timeout: float,
    print_plan: Render | None = None,
    **options: Any,
) -> None:
    """Show the plan with `dry_run`, else run the job."""
    if dry_run:
        plan = client.maintenance.run(table, what, dry_run=True, **options)
        output.show(plan, print_plan or _print_steps)
    else:
        body = {"what": what, **options}
        run_job(client, output, "maintenance", body, _print_steps, table=table, timeout=timeout)


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
    print(f"{counted(len(plan['expiring_snapshots']), 'snapshot')} with such rows will be removed too")
    if plan["holding_snapshots"]:
        tags = f", the tags {', '.join(plan['holding_tags'])} among them" if plan["holding_tags"] else ""
        print(f"{len(plan['holding_snapshots']):,} younger ones hold such rows and stay{tags}: see --all-snapshots")
    if plan["rows"] or plan["expiring_snapshots"]:
        print(f"to remove them: frazil retention {table} --apply")


def _print_purge(answer: dict[str, Any], table: str) -> None:
    for one in answer["tables"]:
        print(f"  {one['hidden']}  {counted(one['files'], 'file')}  {_size(one['bytes'])}  {one['location']}")
    print("purged" if answer["purged"] else f"to delete it permanently: frazil purge {table} --yes")


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
