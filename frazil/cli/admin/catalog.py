"""`frazil catalog repair`: the tables that the catalog lacks, found again in the warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, console
from frazil.cli.terminal_cells import styled
from frazil.cli.verb import local_verb

if TYPE_CHECKING:
    from frazil.settings import Settings

app = typer.Typer(help="Repair the catalog of tables.", no_args_is_help=True)

# Whoever declares a table writes its first file and then its row of the catalog, within a second or so.
_SETTLED_SECONDS = 60.0
_NOT_IN_THE_WAREHOUSE = (
    {
        "what": "tokens and grants",
        "hint": "create them again: frazil token create; the admin token is in the data folder",
    },
    {"what": "submitted jobs", "hint": "submit them again: frazil compact, frazil ingest, …"},
    {
        "what": "records of bulk loads (lineage, and which files were loaded)",
        "hint": "a table knows its newest 64 loads; a file of an earlier load would be loaded again",
    },
)


@app.callback()
def _of_the_catalog() -> None:
    """Repair the catalog of tables."""


@app.command()
@local_verb
def repair(
    options: SharedOptions,
    output: Output,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Register every table of the warehouse that the catalog lacks: after it was lost, or moved away as damaged.

    What the catalog has stays as it is, and no file of a table is changed.
    """
    from frazil.lake.recovery import repair_catalog
    from frazil.runtime import DataDir, open_journal, open_the_lake

    settings = options.settings()
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
    output.show(report, lambda _: _print_tables(tables, settings, dry_run=dry_run))
    raise typer.Exit(1 if any(table.state in ("damaged", "behind") for table in found) else 0)


def _print_tables(tables: list[dict[str, Any]], settings: Settings, *, dry_run: bool) -> None:
    from rich.markup import escape

    out = console()
    if not tables:
        out.print(f"there is no table in {settings.warehouse_url}", markup=False)
        return
    colours = {"registered": "green", "damaged": "red", "behind": "red"}
    rows = [
        [
            table["name"],
            styled(table["state"].replace("_", " "), colours.get(table["state"], "dim")),
            *(f"{table[word]:,}" for word in ("rows", "snapshots", "columns")),
        ]
        for table in tables
    ]
    listing(("table", "state", ">rows", ">snapshots", ">columns"), rows)
    for table in tables:
        for words in _notes(table):
            out.print(f"{escape(table['name'])}: {escape(words)}", soft_wrap=True)
    if any(table["state"] == "registered" for table in tables):
        out.print("\nNot in the warehouse, and lost:" if not dry_run else "\nNot in the warehouse, and lost then:")
        for lost in _NOT_IN_THE_WAREHOUSE:
            out.print(f"  {lost['what']}: {lost['hint']}", markup=False, soft_wrap=True)


def _notes(table: dict[str, Any]) -> list[str]:
    notes = [table["note"]] if table["note"] else []
    if table["unreadable"]:
        notes.append(f"{len(table['unreadable'])} metadata files cannot be read, for example {table['unreadable'][0]}")
    if table["rivals"]:
        notes.append(f"{table['metadata']} was used; {', '.join(table['rivals'])} may be the newest too")
    return notes
