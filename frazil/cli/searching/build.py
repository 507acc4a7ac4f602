"""`frazil build`: an artifact of a table, to answer searches from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.load.jobs import progress
from frazil.cli.output import AsJson, Config, Data, Url, connected, counted, print_json

_STEPS = ("fold", "embed", "read", "contents", "index", "text", "duckdb", "hash", "publish")


def build(
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    profile: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Build what this profile is answered from.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also when nothing has changed.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait for the pipeline.")] = 3600.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Turn the table as it is now into an artifact that searches are answered from."""
    with connected(data, config, url) as client, progress(as_json=as_json) as tell:
        told = client.build(table, profile=profile, force=force, timeout_s=timeout, tell=tell)
    if as_json:
        print_json(told)
    else:
        print_report(told)


def print_report(told: dict[str, Any]) -> None:
    """What was built, for people."""
    if "generation" not in told:
        print(f"{told['shelf']}: nothing to build, {told['because']}")
        return
    if not told["built"]:
        print(f"{told['shelf']}: nothing to build, {told['because']} {told['generation']}")
        return
    print(f"{told['shelf']}: {told['generation']} built in {told['seconds']:.1f} s")
    words = {
        "holds": f"{counted(told['rows'], 'row')}, {counted(told['chunks'], 'chunk')}, "
        f"{counted(told['vectors'], 'vector')} of {told['model']} ({told['dims']} numbers)",
        "quarantined": f"{told['quarantined']:,}" if told["quarantined"] else "",
        "vectors kept": f"{told['vectors_kept']:,} of the last build, {told['vectors_read']:,} read",
        "size": f"{told['bytes'] / 1e6:,.1f} MB",
        "seconds": ", ".join(f"{step} {told['steps'][step]:.1f}" for step in _STEPS if told["steps"].get(step)),
        "snapshot": told["snapshot_id"],
        "is current": "" if told["is_current"] else "no: another build was of newer rows",
    }
    for name, value in words.items():
        if value not in ("", None):
            print(f"  {name:<13} {value}")
