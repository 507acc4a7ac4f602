"""`frazil embed`: the vectors of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.load.jobs import progress
from frazil.cli.output import AsJson, Config, Data, Url, connected, console, counted, print_json
from frazil.errors import InvalidInput


def embed(
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Embed with this model, and make it the table's.")
    ] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="With --model: leave the table's model as it is.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what is in quarantine.")] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Then take away the vectors of chunks that changed or are gone.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the models that the table has vectors of.")] = False,
    delete_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Delete the vectors of a model that is not the table's.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete-model: delete them.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait for the pipeline.")] = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give every new or changed chunk of a table its vector; the rest keeps those it has."""
    if delete_model is not None and not yes:
        raise InvalidInput(
            f"this deletes all vectors of {delete_model!r}",
            code="not_confirmed",
            hint=f"frazil embed {table} --delete-model {delete_model} --yes",
        )
    with connected(data, config, url) as client:
        if delete_model is not None:
            _tell_deleted(client.delete_embeddings(table, delete_model), as_json=as_json)
            return
        if list_:
            _tell_models(client.embedding_models(table), as_json=as_json)
            return
        with progress(as_json=as_json) as tell:
            wanted: dict[str, Any] = {"model": model, "shadow": shadow, "retry": retry, "sweep": sweep}
            told = client.embed(table, **wanted, timeout_s=timeout, tell=tell)
    if as_json:
        print_json(told)
    else:
        print_report(told)


def print_report(told: dict[str, Any]) -> None:
    """What became of the chunks, for people."""
    print(f"{told['table']}: {counted(told['embedded'], 'chunk')} embedded in {told['seconds']:.1f} s")
    words = {
        "model": f"{told['model']} ({told['dims']} numbers, version {told['version']})",
        "looked at": f"{counted(told['rows'], 'row')}, {counted(told['chunks'], 'chunk')} ({told['looked_at']})",
        "had a vector": f"{told['known']:,}" if told["known"] else "",
        "same as others": f"{told['reused']:,}" if told["reused"] else "",
        "quarantined": f"{told['quarantined']:,}" if told["quarantined"] else "",
        "because of": ", ".join(f"{code} ({number:,})" for code, number in told["reasons"].items()),
        "swept away": f"{told['swept']:,}" if "swept" in told else "",
        "snapshot": told["snapshot_id"],
        "searched with": "" if told.get("is_of_table", True) else "another model: this one is a shadow",
    }
    for name, value in words.items():
        if value not in ("", None):
            print(f"  {name:<15} {value}")
    if told["quarantined"]:
        where = f"{told['table']}__embeddings__quarantine"
        print(f'  look at them    frazil sql "SELECT document, code, reason FROM {where}"')  # noqa: S608 - shown, not run


def _tell_deleted(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        print(f"{told['table']}: {counted(told['deleted'], 'vector')} of {told['model']} deleted")


def _tell_models(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    from rich.table import Table

    listing = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    listing.add_column("model")
    for heading in ("vectors", "quarantined", "numbers"):
        listing.add_column(heading, justify="right")
    for heading in ("version", "last run", ""):
        listing.add_column(heading)
    for model in told["models"]:
        listing.add_row(
            model["model"],
            f"{model['vectors']:,}",
            f"{model['quarantined']:,}",
            str(model["dims"] or ""),
            str(model["version"] or ""),
            str(model["last_run_at"] or "not finished")[:19],
            "the table's" if model["is_of_table"] else "",
        )
    console().print(listing if told["models"] else f"{told['table']} has no vectors yet: frazil embed {told['table']}")
