"""`frazil jobs`: the jobs of the pipeline and their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import Output
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


@verb
def jobs(client: Client, output: Output, job_id: Annotated[str | None, typer.Argument(metavar="[ID]")] = None) -> None:
    """Show jobs and their states: waiting, running, done or failed."""
    found = client.jobs.list() if job_id is None else [client.jobs.get(job_id)]
    output.show({"jobs": found} if job_id is None else found[0], lambda _: _print_jobs(found))


def _print_jobs(found: list[dict[str, Any]]) -> None:
    for job in found:
        print(_line(job))
    if not found:
        print("no jobs")


def _line(job: dict[str, Any]) -> str:
    parts = [job["id"], job["state"], job["kind"], job["subject"]]
    if job["state"] == "running":
        parts.append("  ".join(f"{name}={value}" for name, value in (job.get("progress") or {}).items()))
    if job["state"] == "failed":
        parts.append(job["error"]["message"])
    return "  ".join(parts)
