"""`frazil profiles`: named ways to search a table."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, console, print_json
from frazil.errors import InvalidInput

app = typer.Typer(help="Named ways to search a table: model, index, filter, mode, k, columns.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("list")
def list_(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """The profiles of the tables that the token may read."""
    with connected(data, config, url) as client:
        found = client.profiles(table)
    if as_json:
        print_json({"profiles": found})
        return
    from rich.markup import escape
    from rich.table import Table

    listing = Table("name", "table", "what it says", box=None, pad_edge=False, header_style="dim")
    for profile in found:
        words = [f"{word} {_text(profile[word])}" for word in _WORDS if profile.get(word) is not None]
        listing.add_row(profile["name"], profile["table"], escape("; ".join(words)))
    console().print(listing if found else "no profiles yet")


@app.command()
def show(name: Name, data: Data = None, config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """One profile."""
    with connected(data, config, url) as client:
        told = client.profile(name)
    _tell(told, as_json=as_json)


@app.command("set")
def set_(
    name: Name,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="The table that it searches.")],
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Another model than the table's.")] = None,
    index: Annotated[str | None, typer.Option(metavar="JSON", help='An index of its own, as {"kind": "flat"}.')] = None,
    filter_: Annotated[str | None, typer.Option("--filter", metavar="SQL", help="A condition on every row.")] = None,
    mode: Annotated[str | None, typer.Option(help="vector, text or hybrid.")] = None,
    k: Annotated[int | None, typer.Option(help="How many hits.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Of the row, as in title,year.")] = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a profile, or make it another. One with a model or an index of its own has artifacts of its own."""
    fields: dict[str, Any] = {"model": model, "filter": filter_, "mode": mode, "k": k}
    fields["index"] = _json(index) if index is not None else None
    fields["columns"] = [column.strip() for column in columns.split(",")] if columns is not None else None
    with connected(data, config, url) as client:
        told = client.set_profile(name, table, **fields)
    _tell(told, as_json=as_json)


@app.command()
def delete(name: Name, data: Data = None, config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """Delete a profile, and the artifacts that only it had."""
    with connected(data, config, url) as client:
        told = client.delete_profile(name)
    if as_json:
        print_json(told)
    else:
        print(f"the profile {name} is deleted")


_WORDS = ("model", "index", "filter", "mode", "k", "columns")


def _tell(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    print(f"{told['name']} searches {told['table']}")
    for word in _WORDS:
        if told.get(word) is not None:
            print(f"  {word:<9} {_text(told[word])}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--index is not JSON: {error}", code="bad_profile", hint='\'{"kind": "flat"}\'') from error
