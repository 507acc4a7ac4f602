"""`frazil tables health`, `frazil compact|expire|orphans|retention|purge`: how well kept tables are, and keeping."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, console, counted, print_json

Name = Annotated[str, typer.Argument(metavar="TABLE")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="How many seconds to wait for the pipeline.")]


def health(
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Files, snapshots and metadata of each table, and what to do about them."""
    with connected(data, config, url) as client:
        found = client.tables_health() if name is None else [client.table_health(name)]
    if as_json:
        print_json({"tables": found} if name is None else found[0])
        return
    from rich.markup import escape
    from rich.table import Table

    out = console()
    if not out.is_terminal:
        out.width = 100_000
    listing = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    listing.add_column("table")
    for heading in ("files", "small", "average", "snapshots", "manifests", "metadata"):
        listing.add_column(heading, justify="right")
    listing.add_column("last compaction")
    listing.add_column("verdict", overflow="fold")
    for table in found:
        if "error" in table:
            message = escape(str(table["error"].get("message")))
            listing.add_row(str(table.get("table")), *[""] * 7, f"[red]{message}[/]")
            continue
        good = table["verdict"] == "good"
        listing.add_row(
            str(table["table"]),
            f"{table['files']:,}",
            f"{table['small_files']:,}",
            _size(table["average_bytes"]),
            f"{table['snapshots']:,}",
            f"{table['manifests']:,}",
            _size(table["metadata_bytes"]),
            str(table["last_compaction_at"] or "never")[:19],
            f"[{'green' if good else 'yellow'}]{escape(table['verdict'])}[/]",
        )
    out.print(listing if found else "no tables yet")


def compact(
    table: Name,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Order all rows by these columns, as in customer,at.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make few large files of many small ones; readers and commits go on meanwhile."""
    columns = [column.strip() for column in (sort or "").split(",") if column.strip()]
    with connected(data, config, url) as client:
        _told(client.maintain(table, "compact", sort=columns, dry_run=dry_run, timeout_s=timeout), as_json=as_json)


def expire(
    table: Name,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let go of old snapshots and of the files that only they need; tagged ones stay."""
    with connected(data, config, url) as client:
        _told(client.maintain(table, "expire", dry_run=dry_run, timeout_s=timeout), as_json=as_json)


def orphans(
    table: Name,
    dry_run: DryRun = False,
    timeout: Patience = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that no snapshot names, once they are old enough."""
    with connected(data, config, url) as client:
        answer = client.maintain(table, "remove_orphans", dry_run=dry_run, timeout_s=timeout)
    _told(answer, as_json=as_json)
    if dry_run and not as_json:
        for file in answer["files"]:
            print(f"  {file['path']}  {_size(file['bytes'])}  {file['modified_at'][:19]}")
        print(f"{counted(answer['orphans'], 'file')}, {_size(answer['bytes'])}")


def retention(
    table: Name,
    apply: Annotated[bool, typer.Option("--apply", help="Remove the rows; without it only the plan is shown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as without --apply.")] = False,
    at: Annotated[str | None, typer.Option(metavar="DAY", help="Plan for another day, as in 2030-01-31.")] = None,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Also expire younger snapshots that hold such rows: no way back to them."),
    ] = False,
    timeout: Patience = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Rows beyond the table's retention_years: what would be removed, and with --apply its removal."""
    only_plan = dry_run or not apply
    with connected(data, config, url) as client:
        answer = client.maintain(
            table, "retention", dry_run=only_plan, all_snapshots=all_snapshots, at=at, timeout_s=timeout
        )
    if as_json or not only_plan:
        _told(answer, as_json=as_json)
        return
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


def purge(
    table: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it only what would go is shown.")] = False,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete a dropped table for good: rows, history, and what is on the bus. Nothing brings it back."""
    with connected(data, config, url) as client:
        answer = client.purge_table(table, dry_run=not yes)
    if as_json:
        print_json(answer)
        return
    for one in answer["tables"]:
        print(f"  {one['hidden']}  {counted(one['files'], 'file')}  {_size(one['bytes'])}  {one['location']}")
    print("purged" if answer["purged"] else f"to delete this for good: frazil purge {table} --yes")


def _told(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
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
