"""`frazil embed`: the vectors of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.job import run_job
from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, counted, print_facts
from frazil.cli.verb import verb
from frazil.errors import InvalidInput


@verb
def embed(
    options: SharedOptions,
    output: Output,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Embed with this model, and make it the model of the table.")
    ] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="With --model: keep the model of the table.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Embed the chunks in quarantine again.")] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Then remove vectors of chunks that no longer exist.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the models that the table has vectors of.")] = False,
    delete_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Delete the vectors of a model; not the model of the table.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete-model: delete them.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the pipeline.")] = 3600.0,
) -> None:
    """Embed every new or changed chunk of a table."""
    if delete_model is not None and not yes:
        raise InvalidInput(
            f"this deletes all vectors of {delete_model!r}",
            code="not_confirmed",
            hint=f"frazil embed {table} --delete-model {delete_model} --yes",
        )
    with options.connect() as client:
        if delete_model is not None:
            output.show(client.embeddings.delete(table, delete_model), _print_deletion)
            return
        if list_:
            output.show(client.embeddings.models(table), _print_models)
            return
        body = {"model": model, "shadow": shadow, "retry": retry, "sweep": sweep}
        run_job(client, output, "embed", body, _print_report, table=table, timeout=timeout)


def _print_report(report: dict[str, Any]) -> None:
    print(f"{report['table']}: {counted(report['embedded'], 'chunk')} embedded in {report['seconds']:.1f} s")
    facts = {
        "model": f"{report['model']} ({report['dims']} numbers, version {report['version']})",
        "looked at": f"{counted(report['rows'], 'row')}, {counted(report['chunks'], 'chunk')} ({report['looked_at']})",
        "had a vector": f"{report['known']:,}" if report["known"] else "",
        "same as others": f"{report['reused']:,}" if report["reused"] else "",
        "quarantined": f"{report['quarantined']:,}" if report["quarantined"] else "",
        "because of": ", ".join(f"{code} ({number:,})" for code, number in report["reasons"].items()),
        "swept away": f"{report['swept']:,}" if "swept" in report else "",
        "snapshot": report["snapshot_id"],
        "searched with": "" if report.get("is_of_table", True) else "another model: this one is a shadow",
    }
    print_facts(facts, width=15)
    if report["quarantined"]:
        where = f"{report['table']}__embeddings__quarantine"
        print(f'  look at them    frazil sql "SELECT document, code, reason FROM {where}"')  # noqa: S608 - shown, not run


def _print_deletion(report: dict[str, Any]) -> None:
    print(f"{report['table']}: {counted(report['deleted'], 'vector')} of {report['model']} deleted")


def _print_models(answer: dict[str, Any]) -> None:
    rows = [
        [
            model["model"],
            f"{model['vectors']:,}",
            f"{model['quarantined']:,}",
            str(model["dims"] or ""),
            str(model["version"] or ""),
            str(model["last_run_at"] or "not finished")[:19],
            "the table's" if model["is_of_table"] else "",
        ]
        for model in answer["models"]
    ]
    headings = ("model", ">vectors", ">quarantined", ">numbers", "version", "last run", "")
    listing(headings, rows, none=f"{answer['table']} has no vectors yet: frazil embed {answer['table']}")
