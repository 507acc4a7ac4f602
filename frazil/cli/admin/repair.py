"""`frazil repair`: the decisions that only a person may take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, print_json

app = typer.Typer(help="Go on after the bus or a table lost something.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TABLE")]


@app.command()
def bus(
    table: Name,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Yes: what the bus no longer has is lost, go on from what it has.")
    ] = False,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Go on although events between the table and the bus are gone, or the bus is another one.

    Without --accept-loss it only tells exactly which events would be given up.
    """
    with connected(data, config, url) as client:
        _told(client.repair_table(table, "bus", accept_loss=accept_loss), as_json=as_json)


@app.command()
def watermark(table: Name, data: Data = None, config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """Go on with a table that was rolled back by hand: its snapshot says which events it has."""
    with connected(data, config, url) as client:
        _told(client.repair_table(table, "watermark"), as_json=as_json)


def _told(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print("repaired")
    for key, value in answer.items():
        print(f"  {key}: {value}")
