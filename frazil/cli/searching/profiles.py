"""`frazil profiles`: named ways to search a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output
from frazil.cli.verb import verb
from frazil.errors import InvalidInput

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="Named ways to search a table: model, index, filter, mode, k, columns.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("list")
@verb
def list_(
    client: Client,
    output: Output,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
) -> None:
    """The profiles of the tables that the token may read."""
    found = client.profiles(table)
    output.show({"profiles": found}, lambda _: _print_profiles(found))


@app.command()
@verb
def show(client: Client, output: Output, name: Name) -> None:
    """One profile."""
    output.show(client.profile(name), _print_profile)


@app.command("set")
@verb
def set_(
    options: SharedOptions,
    output: Output,
    name: Name,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="The table that it searches.")],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Use this model, not the model of the table.")
    ] = None,
    index: Annotated[str | None, typer.Option(metavar="JSON", help='An index of its own, as {"kind": "flat"}.')] = None,
    filter_: Annotated[str | None, typer.Option("--filter", metavar="SQL", help="A condition on every row.")] = None,
    mode: Annotated[str | None, typer.Option(help="vector, text or hybrid.")] = None,
    k: Annotated[int | None, typer.Option(help="How many hits.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns of a hit, as in title,year.")] = None,
) -> None:
    """Create or replace a profile. A profile with its own model or index has its own artifacts."""
    fields: dict[str, Any] = {"model": model, "filter": filter_, "mode": mode, "k": k}
    fields["index"] = _json(index) if index is not None else None
    fields["columns"] = [column.strip() for column in columns.split(",")] if columns is not None else None
    with options.connect() as client:
        profile = client.set_profile(name, table, **fields)
    output.show(profile, _print_profile)


@app.command()
@verb
def delete(client: Client, output: Output, name: Name) -> None:
    """Delete a profile, and the artifacts that only it used."""
    output.line(client.delete_profile(name), f"the profile {name} is deleted")


_WORDS = ("model", "index", "filter", "mode", "k", "columns")


def _print_profiles(profiles: list[dict[str, Any]]) -> None:
    rows = []
    for profile in profiles:
        words = [f"{word} {_text(profile[word])}" for word in _WORDS if profile.get(word) is not None]
        rows.append([profile["name"], profile["table"], "; ".join(words)])
    listing(("name", "table", "settings"), rows, none="no profiles yet")


def _print_profile(profile: dict[str, Any]) -> None:
    print(f"{profile['name']} searches {profile['table']}")
    for word in _WORDS:
        if profile.get(word) is not None:
            print(f"  {word:<9} {_text(profile[word])}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--index is not JSON: {error}", code="bad_profile", hint='\'{"kind": "flat"}\'') from error
