"""`frazil export vault`: the notes of a table as the Markdown files that they came from, or would come from."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.load.ingest_vault import Folder, Notes, VaultName
from frazil.cli.output import AsJson, Config, Data, Url, connected, print_json
from frazil.errors import NotFound

if TYPE_CHECKING:
    from frazil.vault import ExportReport


def vault(
    folder: Folder,
    name: VaultName = None,
    notes: Notes = "notes",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are different.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete notes that the table does not have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Write the current notes of a vault as Markdown files.

    Files that are there with other content stay as they are, unless --force says otherwise; rows whose paths would lead
    out of the folder are refused. What was left alone is told, and the command then ends with 1.
    """
    from frazil.vault import ClientTables, export_notes

    vault_name = name or folder.resolve().name
    with connected(data, config, url) as client:
        tables = ClientTables(client, notes=notes)
        further = tables.further()
        known = tables.vaults()
        if vault_name not in known:
            raise NotFound(
                f"the table has no notes of a vault {vault_name!r}",
                code="no_such_vault",
                hint=f"give --vault; there are {', '.join(known[:20])}" if known else "nothing is ingested yet",
            )
        report = export_notes(
            tables.rows(vault_name), folder, vault_name, further, force=force, delete=delete, dry_run=dry_run
        )
    _tell(report, as_json=as_json)
    if report.refused:
        raise typer.Exit(1)


def _tell(report: ExportReport, *, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(report), "seconds": round(report.seconds, 3)})
        return
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
