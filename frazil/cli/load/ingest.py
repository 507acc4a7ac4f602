"""`frazil ingest`: whole sources into tables."""

from __future__ import annotations

import typer

from frazil.cli.load import ingest_postgres
from frazil.cli.load.ingest_csv import csv
from frazil.cli.load.ingest_vault import vault

app = typer.Typer(help="Load whole sources; each run adds what is new or changed.", no_args_is_help=True)
app.command("csv")(csv)
app.add_typer(ingest_postgres.app, name="postgres")
app.command("vault")(vault)


@app.callback()
def _group() -> None:
    """Load whole sources; each run adds what is new or changed."""
