"""`frazil ingest postgres`: the nightly archive, or the refresh of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.job import run_job
from frazil.cli.output import Output, counted
from frazil.cli.verb import verb
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="Load from a Postgres that \\[sources.NAME] in frazil.toml names.", no_args_is_help=True)
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The name below \\[sources.NAME].")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table in the Postgres.")]
Into = Annotated[str | None, typer.Option("--into", metavar="TABLE", help="The table here. Default: the same name.")]
Kind = Annotated[str, typer.Option("--kind", help="Kind of a new table: log or entity.")]
Key = Annotated[list[str] | None, typer.Option("--key", metavar="COLUMN", help="Default: the primary key.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the load.")]


@app.command()
@verb
def archive(
    client: Client,
    output: Output,
    source: Source,
    tables: Annotated[list[str] | None, typer.Argument(metavar="[TABLE]...", help="Names or patterns.")] = None,
    night: Annotated[str | None, typer.Option("--date", help="The night, as in 2026-11-16. Default: today.")] = None,
    timeout: Patience = 86_400.0,
) -> None:
    """Archive tables as of one moment, each into archive.TABLE with tonight's date."""
    body = {"source": source, "what": "archive", "tables": tables or [], "run_date": night}
    done = run_job(client, output, "postgres", body, _print_night, timeout=timeout)
    if done["failed"]:
        raise FrazilError(
            f"{done['failed']} of {len(done['tables'])} tables failed; the others are archived",
            code="archive_incomplete",
            hint="fix the errors in the report and run it again; the whole night is replaced",
        )


@app.command()
@verb
def incremental(
    client: Client,
    output: Output,
    source: Source,
    table: Table,
    cursor: Annotated[str, typer.Option("--cursor", metavar="COLUMN", help="A column that only grows.")],
    into: Into = None,
    kind: Kind = "log",
    overlap: Annotated[float, typer.Option(min=0, help="Read again this much before the last value.")] = 0.0,
    nulls: Annotated[str, typer.Option(help="Rows without a cursor value: skip or include.")] = "skip",
    key: Key = None,
    timeout: Patience = 86_400.0,
) -> None:
    """Load the rows that are new since the last load, by a column that only grows."""
    body = {
        "source": source,
        "what": "incremental",
        "tables": [table],
        "into": into,
        "kind": kind,
        "cursor": cursor,
        "overlap": overlap,
        "nulls": nulls,
        "key": key or [],
    }
    run_job(client, output, "postgres", body, _print_refresh, timeout=timeout)


@app.command()
@verb
def full(
    client: Client,
    output: Output,
    source: Source,
    table: Table,
    into: Into = None,
    kind: Kind = "log",
    key: Key = None,
    timeout: Patience = 86_400.0,
) -> None:
    """Load the whole table: a log is replaced; an entity gets changes and deletes."""
    body = {"source": source, "what": "full", "tables": [table], "into": into, "kind": kind, "key": key or []}
    run_job(client, output, "postgres", body, _print_refresh, timeout=timeout)


def _print_night(done: dict[str, Any]) -> None:
    print(f"archive of {done['source']}, {done['night']}, as of {done['taken_at']}")
    width = max([len(line["table"]) for line in done["tables"]], default=5)
    for line in done["tables"]:
        if line["error"]:
            print(f"  {line['table']:<{width}}  FAILED: {line['error']}")
            continue
        changed = "first night" if line["difference"] is None else f"{line['difference']:+,}"
        print(
            f"  {line['table']:<{width}}  {line['rows']:>12,} rows  {changed:>12}  {line['bytes']:>14,} bytes  "
            f"snapshot {line['snapshot_id']}  v{line['metadata_version']}  {line['seconds']:.1f} s"
        )
    print(f"{counted(done['rows'], 'row')} in {done['seconds']:.1f} s; report: {done['report']['html']}")
    if done.get("mail_error"):
        print(f"not mailed: {done['mail_error']}")


def _print_refresh(done: dict[str, Any]) -> None:
    facts = {name: value for name, value in done.items() if name in _SHOWN and value not in (None, "")}
    print(f"{done['table']}: {counted(done['rows'], 'row')} from {done['source_table']} in {done['seconds']:.1f} s")
    for name, value in facts.items():
        print(f"  {name:<12} {value}")


_SHOWN = ("upserts", "deletes", "unchanged", "repeated", "null_cursor", "cursor", "snapshot_id", "token")
