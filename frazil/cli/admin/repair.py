"""`frazil repair`: repairs that need a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import Output
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


app = typer.Typer(help="Continue after the bus or a table lost data.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TABLE")]


@app.command()
@verb
def bus(
    client: Client,
    output: Output,
    table: Name,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Accept the loss of events that the bus no longer has.")
    ] = False,
) -> None:
    """Continue although events between the table and the bus are lost, or the bus was replaced.

    Without --accept-loss it only lists the events that would be lost.
    """
    output.show(client.repair_table(table, "bus", accept_loss=accept_loss), _print_repair)


@app.command()
@verb
def watermark(client: Client, output: Output, table: Name) -> None:
    """Continue with a table that was rolled back by hand, from the watermark of its snapshot."""
    output.show(client.repair_table(table, "watermark"), _print_repair)


def _print_repair(answer: dict[str, Any]) -> None:
    print("repaired")
    for key, value in answer.items():
        print(f"  {key}: {value}")
