"""`frazil export vault`: the notes of a table as Markdown files."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.load.ingest_vault import Folder, Notes, VaultName
from frazil.cli.output import Output
from frazil.cli.verb import verb
from frazil.errors import NotFound

if TYPE_CHECKING:
    from frazil.client import Client
    from frazil.vault import ExportReport


@verb
def vault(
    client: Client,
    output: Output,
    folder: Folder,
    name: VaultName = None,
    notes: Notes = "notes",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are different.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete notes that the table does not have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Write the current notes of a vault as Markdown files.

    Existing files with other content are kept, except with --force. Rows whose paths lead out of the folder are
    refused. Refused rows are listed, and the exit code is then 1.
    """
    from frazil.vault import ClientTables, export_notes

    vault_name = name or folder.resolve().name
    tables = ClientTables(client, notes=notes)
    further = tables.further()
    known = tables.vaults()
    if vault_name not in known:
        raise NotFound(
            f"the table has no notes of a vault {vault_name!r}",
            code="no_such_vault",
            hint=f"add --vault; the table has {', '.join(known[:20])}" if known else "ingest a vault first",
        )
    report = export_notes(
        tables.rows(vault_name), folder, vault_name, further, force=force, delete=delete, dry_run=dry_run
    )
    output.show({**asdict(report), "seconds": round(report.seconds, 3)}, lambda _: _print_report(report))
    if report.refused:
        raise typer.Exit(1)


def _print_report(report: ExportReport) -> None:
    for what, path in report.planned:
        print(f"{what:8} {path}")
    for left in report.refused:
        print(f"refused  {left.path!r}: {left.reason}", file=sys.stderr)
    for left in report.inexact:
        print(f"warning  {left.path}: {left.reason}", file=sys.stderr)
    print(
        f"{report.vault}: {report.notes:,} notes: {report.written:,} written, {report.unchanged:,} unchanged, "
        f"{report.deleted:,} deleted, {len(report.refused):,} refused; {report.seconds:.2f} s"
    )
