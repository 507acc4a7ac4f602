"""`frazil ingest vault`: a folder of Markdown notes into its two tables, once or for as long as it is edited."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, print_error
from frazil.cli.verb import verb
from frazil.errors import FrazilError, Unavailable

if TYPE_CHECKING:
    from frazil.client import Client
    from frazil.vault import SyncReport, VaultSync

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that holds the notes.")]
VaultName = Annotated[
    str | None, typer.Option("--vault", metavar="NAME", help="The vault's name in the tables.", show_default="DIR")
]
Notes = Annotated[str, typer.Option("--notes", metavar="TABLE", help="The table of notes.")]
Links = Annotated[str, typer.Option("--links", metavar="TABLE", help="The table of links.")]


@verb
def vault(
    options: SharedOptions,
    output: Output,
    folder: Folder,
    name: VaultName = None,
    notes: Notes = "notes",
    links: Links = "note_links",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=TYPE", help="A column from front matter, as in status=string."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and publish every edit until Ctrl-C.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be published.")] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Delete all notes of the vault if the folder has none.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all notes are committed and visible.")] = False,
    timeout_s: Annotated[float, typer.Option(help="Seconds that --wait waits.")] = 60.0,
) -> None:
    """Load a folder of Markdown notes.

    A second run publishes only the edits since the first. A note that is gone from the folder is deleted from the
    tables and stays in their history. Files that cannot be read are listed, and the exit code is then 1.
    """
    from frazil.vault import ClientTables, VaultSync, parse_columns

    further = parse_columns(column or [])
    with options.connect() as client:
        tables = ClientTables(client, notes=notes, links=links)
        sync = VaultSync(
            folder,
            name or folder.resolve().name,
            tables,
            further=tables.declare(further, dry_run=dry_run),
            combine_tokens=tables.combined,
        )
        report = sync.run(dry_run=dry_run, allow_empty=allow_empty)
        if wait and report.token:
            _until_visible(client, report.token, timeout_s)
        shown = set[str]()
        _show(output, report, shown)
        if report.token and not output.as_json:
            print(f"token {report.token}", flush=True)
        if watch and not dry_run:
            _follow(output, sync, folder, shown)
    if report.skipped and not watch:
        raise typer.Exit(1)


def _follow(output: Output, sync: VaultSync, folder: Path, shown: set[str]) -> None:
    from frazil.vault import follow

    def failed(error: FrazilError) -> None:
        print_error(error, as_json=output.as_json)

    print("watching; Ctrl-C stops it", file=sys.stderr, flush=True)
    try:
        for report in follow(sync, folder.resolve(), on_error=failed):
            _show(output, report, shown)
    except KeyboardInterrupt:
        return


def _until_visible(client: Client, token: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not client.visibility(token, wait_s=max(0.0, min(10.0, deadline - time.monotonic()))).get("visible"):
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"the notes are safe, but not all are visible after {timeout_s:.0f} s",
                code="visibility_timeout",
                hint="`frazil status` shows the lag of the pipeline",
            )


def _show(output: Output, report: SyncReport, shown: set[str]) -> None:
    output.show({**asdict(report), "seconds": round(report.seconds, 3)}, lambda _: _print_report(report, shown))


def _print_report(report: SyncReport, shown: set[str]) -> None:
    """One line for what was done, and one on standard error for each file that needs a look and was not shown yet."""
    for what, path in report.planned:
        print(f"{what:8} {path}")
    looks = [f"skipped  {skipped.path}: {skipped.reason}" for skipped in report.skipped]
    looks += [f"warning  {warned.path}: {warned.warning}" for warned in report.warnings]
    for look in looks:
        if look not in shown:
            print(look, file=sys.stderr)
    shown.clear()
    shown.update(looks)
    foreign = f", {report.foreign:,} of other producers" if report.foreign else ""
    skips = f", {len(report.skipped):,} skipped" if report.skipped else ""
    print(
        f"{report.vault}: {report.files:,} notes: {report.new:,} new, {report.changed:,} changed, "
        f"{report.deleted:,} deleted, {report.unchanged:,} unchanged{foreign}{skips}; "
        f"{report.links:,} links: {report.links_published:,} published, {report.links_deleted:,} deleted; "
        f"{report.seconds:.2f} s",
        flush=True,
    )
