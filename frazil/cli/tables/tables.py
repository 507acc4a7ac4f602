"""`frazil tables`: tables declared, listed, described, altered, dropped and restored."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing, table_of
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, console
from frazil.cli.tables import dead_letters, maintain
from frazil.cli.tables import history as tables_history
from frazil.cli.verb import verb
from frazil.errors import InvalidInput

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="Declare and manage tables.", no_args_is_help=True)
app.command("health")(maintain.health)
app.command("history")(tables_history.history)
app.command("loads")(tables_history.loads)
app.command("rows")(tables_history.rows)
app.command("changes")(tables_history.changes)
app.command("export-hint")(tables_history.export_hint)
app.command("dead-letters")(dead_letters.dead_letters)
app.command("resend")(dead_letters.resend)
app.command("discard")(dead_letters.discard)
_SHOWN_APART = ("columns", "snapshots", "declaration", "schema", "lineage", "loads")
Name = Annotated[str, typer.Argument(metavar="TABLE")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", metavar="NAME:TYPE", help="A column, as in amount:decimal(12,2).")
]

Text = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column whose text is searched.")]


@app.command("list")
@verb
def list_(
    client: Client,
    output: Output,
    dropped: Annotated[bool, typer.Option("--dropped", help="List dropped tables.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also derived tables.")] = False,
) -> None:
    """List tables. Derived tables are listed with `--all`, and in JSON."""
    from frazil.events.declaration import DEAD_LETTERS_SUFFIX, EMBEDDINGS_SUFFIX, QUARANTINE_SUFFIX, TRIALS_SUFFIX

    found = client.tables(dropped=dropped)
    derived = () if everything else (QUARANTINE_SUFFIX, EMBEDDINGS_SUFFIX, TRIALS_SUFFIX, DEAD_LETTERS_SUFFIX)
    listed = [table for table in found if not str(table.get("name")).endswith(derived)]
    output.show({"tables": found}, lambda _: _print_tables(listed))


@app.command()
@verb
def create(
    options: SharedOptions,
    output: Output,
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE|-", help="A declaration in JSON.")] = None,
    column: Columns = None,
    kind: Annotated[str | None, typer.Option(help="log or entity.", show_default="log")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key column of an entity.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="As in day(at), hour(at), month(at), bucket(16,user) or a column.")
    ] = None,
    unknown_fields: Annotated[str | None, typer.Option(help="Undeclared fields: evolve, keep or reject.")] = None,
    description: Annotated[str | None, typer.Option(help="What the table holds.")] = None,
    owner: Annotated[str | None, typer.Option(help="The owner.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag.")] = None,
    text: Text = None,
    model: Annotated[str | None, typer.Option(help="The embedding model.", show_default="wordllama")] = None,
    freshness_target_seconds: Annotated[
        float | None, typer.Option(help="Target for the age of the newest row.")
    ] = None,
    retention_years: Annotated[float | None, typer.Option(help="Years after which rows may be removed.")] = None,
) -> None:
    """Declare a table. The same declaration again changes nothing."""
    declared = _declaration(file) if file else {}
    words = {
        "name": name,
        "kind": kind,
        "columns": _columns(column),
        "key": key,
        "partition": partition,
        "unknown_fields": unknown_fields,
        "description": description,
        "owner": owner,
        "tags": tag,
        "text": text,
        "search": {"model": model} if model else None,
        "freshness_target_seconds": freshness_target_seconds,
        "retention_years": retention_years,
    }
    declared |= {word: value for word, value in words.items() if value}
    if not declared.get("name"):
        raise InvalidInput("the table has no name", code="no_name", hint="frazil tables create NAME --column a:string")
    if not declared.get("columns"):
        raise InvalidInput(
            "the table has no columns", code="no_columns", hint="add --column NAME:TYPE, or --file with a declaration"
        )
    with options.connect() as client:
        made = client.create_table(declared.pop("name"), declared.pop("columns"), **declared)
    output.line(made, f"table {made.get('name')} is ready")


@app.command()
@verb
def describe(client: Client, output: Output, name: Name) -> None:
    """Show columns, description, freshness, lineage, snapshots and the metadata file."""
    output.show(client.table(name), _print_description)


def _print_tables(tables: list[dict[str, Any]]) -> None:
    rows = [
        [
            str(table.get("name")),
            str(table.get("kind", "")),
            ", ".join(table.get("columns") or {}),
            str(table.get("description") or ""),
        ]
        for table in tables
    ]
    listing(("table", "kind", "columns", "description"), rows, none="no tables yet")


def _print_description(body: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column()
    facts.add_column(overflow="fold")
    for key, value in body.items():
        if key not in _SHOWN_APART and value not in (None, "", [], {}):
            facts.add_row(f"[dim]{key}[/]", escape(value if isinstance(value, str) else json.dumps(value, default=str)))
    out.print(facts)
    out.print()
    columns = (body.get("columns") or {}).items()
    out.print(table_of(("column", "type", ""), [_column_row(name, declared) for name, declared in columns]))
    if "lineage" in body:
        out.print()
        tables_history.print_lineage(body["lineage"])
    if body.get("loads"):
        out.print()
        tables_history.print_loads(body["loads"][:10])
        out.print()
    for snapshot in (body.get("snapshots") or [])[:10]:
        out.print(f"[dim]snapshot[/] {escape(json.dumps(snapshot, default=str))}", soft_wrap=True)


@app.command()
@verb
def alter(
    options: SharedOptions,
    output: Output,
    name: Name,
    add: Annotated[list[str] | None, typer.Option("--add", metavar="NAME:TYPE", help="Add a column.")] = None,
    widen: Annotated[
        list[str] | None, typer.Option("--widen", metavar="NAME:TYPE", help="Widen a column, as int to long.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="What the table holds.")] = None,
    owner: Annotated[str | None, typer.Option(help="The owner.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; replaces all tags.")] = None,
    text: Text = None,
    freshness_target_seconds: Annotated[
        float | None, typer.Option(help="Target for the age of the newest row.")
    ] = None,
    retention_years: Annotated[float | None, typer.Option(help="Years after which rows may be removed.")] = None,
) -> None:
    """Add columns, widen types, change the description."""
    words = {
        "add_columns": _columns(add),
        "widen": _columns(widen),
        "description": description,
        "owner": owner,
        "tags": tag,
        "text": text,
        "freshness_target_seconds": freshness_target_seconds,
        "retention_years": retention_years,
    }
    changes = {word: value for word, value in words.items() if value not in (None, {}, [])}
    if not changes:
        raise InvalidInput("nothing to change", code="no_change", hint="add --add, --widen, --description, --owner, …")
    with options.connect() as client:
        output.line(client.alter_table(name, **changes), f"table {name} is altered")


@app.command()
@verb
def drop(client: Client, output: Output, name: Name) -> None:
    """Drop a table; its data is kept and `undrop` restores it."""
    answer = client.drop_table(name)
    output.line(answer, f"table {name} is dropped; frazil tables undrop {name} restores it")


@app.command()
@verb
def undrop(client: Client, output: Output, name: Name) -> None:
    """Restore a dropped table with all its rows."""
    output.line(client.undrop_table(name), f"table {name} is restored")


def _column_row(name: str, declared: Any) -> list[str]:
    if not isinstance(declared, dict):
        return [name, str(declared), ""]
    notes = ", ".join(f"{word}: {value}" for word, value in declared.items() if word != "type" and value)
    return [name, str(declared.get("type")), notes]


def _columns(declared: list[str] | None) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in declared or ():
        column, colon, kind = text.partition(":")
        if not colon or not column.strip() or not kind.strip():
            raise InvalidInput(
                f"{text!r} is not a column", code="bad_column", hint="write NAME:TYPE, as in amount:decimal(12,2)"
            )
        columns[column.strip()] = kind.strip()
    return columns


def _declaration(file: str) -> dict[str, Any]:
    try:
        content = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", code="bad_file") from error
    except ValueError as error:
        raise InvalidInput(f"{file} is not JSON: {error}", code="bad_file", hint="fix the JSON") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"{file} is not a declaration", hint='write {"name": …, "columns": {…}}')
    return content
