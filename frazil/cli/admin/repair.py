"""`frazil repair`: the decisions that only a person may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import Output
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


app = typer.Typer(help="Go on after the bus or a table lost something.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TABLE")]


@app.command()
@verb
def bus(
    client: Client,
    output: Output,
    table: Name,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Yes: what the bus no longer has is lost, go on from what it has.")
    ] = False,
) -> None:
    """Go on although events between the table and the bus are gone, or the bus is another one.

    Without --accept-loss it only tells exactly which events would be given up.
    """
    output.show(client.repair_table(table, "bus", accept_loss=accept_loss), _print_repair)


@app.command()
@verb
def watermark(client: Client, output: Output, table: Name) -> None:
    """Go on with a table that was rolled back by hand: its snapshot says which events it has."""
    output.show(client.repair_table(table, "watermark"), _print_repair)


def _print_repair(answer: dict[str, Any]) -> None:
    print("repaired")
    for key, value in answer.items():
        print(f"  {key}: {value}")
