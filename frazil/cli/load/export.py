"""`frazil export`: tables back to files."""

from __future__ import annotations

import typer

from frazil.cli.load.export_vault import vault

app = typer.Typer(help="Write tables back to files.", no_args_is_help=True)
app.command("vault")(vault)


@app.callback()
def _group() -> None:
    """Write tables back to files."""
