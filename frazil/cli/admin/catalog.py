"""`frazil catalog repair`: the tables that the catalog lacks, found again in the warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, console, print_json, settings_of

if TYPE_CHECKING:
    from frazil.settings import Settings

app = typer.Typer(help="Look after the catalog of tables.", no_args_is_help=True)

# Whoever declares a table writes its first file and then its row of the catalog, within a second or so.
_SETTLED_SECONDS = 60.0
_NOT_IN_THE_WAREHOUSE = (
    {"what": "tokens and grants", "hint": "make them anew: frazil token create; the admin token is in the data folder"},
    {"what": "jobs that were asked for", "hint": "ask again: frazil compact, frazil ingest, …"},
    {
        "what": "records of bulk loads (lineage, and which files were loaded)",
        "hint": "the newest 64 loads of a table stay known to the table itself; a file loaded before those loads again",
    },
)


@app.callback()
def _of_the_catalog() -> None:
    """Look after the catalog of tables."""


@app.command()
def repair(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Register every table of the warehouse that the catalog lacks: after it was lost, or moved away as damaged.

    What the catalog has stays as it is, and no file of a table is changed.
    """
    from frazil.lake.recovery import repair_catalog
    from frazil.runtime import open_journal, open_the_lake
    from frazil.runtime.data_dir import DataDir

    settings = settings_of(data, config)
    in_use = DataDir(settings.data_dir).is_locked() or settings.catalog_file is None
    lake = open_the_lake(settings)
    try:
        found = repair_catalog(lake, dry_run=dry_run, settled_seconds=_SETTLED_SECONDS if in_use else 0.0)
    finally:
        lake.close()
    done = [table for table in found if table.state in ("registered", "dropped", "damaged")]
    if done and not dry_run:
        journal = open_journal(settings)
        for table in done:
            journal.append("catalog_repaired", table=table.name, state=table.state, metadata=table.metadata)
    tables = [table.body() for table in found]
    report = {"dry_run": dry_run, "tables": tables, "not_in_the_warehouse": list(_NOT_IN_THE_WAREHOUSE)}
    if as_json:
        print_json(report)
    else:
        _show(tables, settings, dry_run=dry_run)
    raise typer.Exit(1 if any(table.state in ("damaged", "behind") for table in found) else 0)


def _show(tables: list[dict[str, Any]], settings: Settings, *, dry_run: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    if not tables:
        out.print(f"there is no table in {settings.warehouse_url}", markup=False)
        return
    listing = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    listing.add_column("table")
    listing.add_column("state")
    for heading in ("rows", "snapshots", "columns"):
        listing.add_column(heading, justify="right")
    for table in tables:
        colour = {"registered": "green", "damaged": "red", "behind": "red"}.get(table["state"], "dim")
        state = f"[{colour}]{table['state'].replace('_', ' ')}[/]"
        numbers = [f"{table[word]:,}" for word in ("rows", "snapshots", "columns")]
        listing.add_row(table["name"], state, *numbers)
    out.print(listing)
    for table in tables:
        for words in _notes(table):
            out.print(f"{escape(table['name'])}: {escape(words)}", soft_wrap=True)
    if any(table["state"] == "registered" for table in tables):
        out.print("\nWhat the warehouse does not hold:" if not dry_run else "\nWhat the warehouse does not hold, then:")
        for lost in _NOT_IN_THE_WAREHOUSE:
            out.print(f"  {lost['what']}: {lost['hint']}", markup=False, soft_wrap=True)


def _notes(table: dict[str, Any]) -> list[str]:
    notes = [table["note"]] if table["note"] else []
    if table["unreadable"]:
        notes.append(f"{len(table['unreadable'])} metadata files cannot be read, {table['unreadable'][0]} for one")
    if table["rivals"]:
        notes.append(f"{table['metadata']} was taken; {', '.join(table['rivals'])} may have been the last as well")
    return notes
