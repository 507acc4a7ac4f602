"""`frazil jobs`: the jobs of the pipeline and their states; and a line of progress for verbs that wait for one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import Output, console
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client


@verb
def jobs(client: Client, output: Output, job_id: Annotated[str | None, typer.Argument(metavar="[ID]")] = None) -> None:
    """Loads and maintenance that were asked for: waiting, running, done or failed."""
    found = client.jobs() if job_id is None else [client.job(job_id)]
    output.show({"jobs": found} if job_id is None else found[0], lambda _: _print_jobs(found))


def _print_jobs(found: list[dict[str, Any]]) -> None:
    for job in found:
        print(_line(job))
    if not found:
        print("no jobs")


def _line(job: dict[str, Any]) -> str:
    words = [job["id"], job["state"], job["kind"], job["subject"]]
    if job["state"] == "running":
        words.append("  ".join(f"{name}={value}" for name, value in (job.get("progress") or {}).items()))
    if job["state"] == "failed":
        words.append(job["error"]["message"])
    return "  ".join(words)


@contextmanager
def progress(output: Output) -> Iterator[Any]:
    """A line about a job on a terminal, as a callable that takes each state of the job; elsewhere None."""
    if output.as_json or not sys.stderr.isatty():
        yield None
        return
    with console(stderr=True).status("waiting for the pipeline") as status:

        def update(job: dict[str, Any]) -> None:
            done = job.get("progress") or {}
            word = next((word for word in done if word not in ("of", "begun")), None)
            if word is not None:
                status.update(f"{word} {done[word]:,} of {done.get('of', '?'):,}")

        yield update
