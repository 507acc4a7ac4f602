"""`frazil build`: an artifact of a table, for search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.job import run_job
from frazil.cli.output import Output, counted, print_facts
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client

_STEPS = ("fold", "embed", "read", "contents", "index", "text", "duckdb", "hash", "publish")


@verb
def build(
    client: Client,
    output: Output,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    profile: Annotated[str | None, typer.Option(metavar="PROFILE", help="Build the artifact of this profile.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing has changed.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the pipeline.")] = 3600.0,
) -> None:
    """Build an artifact of the table as it is now, for search."""
    body = {"profile": profile, "force": force}
    run_job(client, output, "build", body, _print_report, table=table, timeout=timeout)


def _print_report(report: dict[str, Any]) -> None:
    if "generation" not in report:
        print(f"{report['shelf']}: nothing to build, {report['because']}")
        return
    if not report["built"]:
        print(f"{report['shelf']}: nothing to build, {report['because']} {report['generation']}")
        return
    print(f"{report['shelf']}: {report['generation']} built in {report['seconds']:.1f} s")
    facts = {
        "holds": f"{counted(report['rows'], 'row')}, {counted(report['chunks'], 'chunk')}, "
        f"{counted(report['vectors'], 'vector')} of {report['model']} ({report['dims']} numbers)",
        "quarantined": f"{report['quarantined']:,}" if report["quarantined"] else "",
        "vectors kept": f"{report['vectors_kept']:,} of the last build, {report['vectors_read']:,} read",
        "size": f"{report['bytes'] / 1e6:,.1f} MB",
        "seconds": ", ".join(f"{step} {report['steps'][step]:.1f}" for step in _STEPS if report["steps"].get(step)),
        "snapshot": report["snapshot_id"],
        "is current": "" if report["is_current"] else "no: another build has newer rows",
    }
    print_facts(facts, width=13)
