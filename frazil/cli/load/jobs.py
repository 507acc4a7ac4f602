"""`frazil jobs`: what the pipeline was asked to do, and how it stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, console, print_json


def jobs(
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]")] = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Loads and maintenance that were asked for: waiting, running, done or failed."""
    with connected(data, config, url) as client:
        found = client.jobs() if job_id is None else [client.job(job_id)]
    if as_json:
        print_json({"jobs": found} if job_id is None else found[0])
        return
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
def progress(*, as_json: bool) -> Iterator[Any]:
    """A line that tells what a job does, where somebody looks; what comes back takes each state of the job."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    with console(stderr=True).status("waiting for the pipeline") as status:

        def tell(job: dict[str, Any]) -> None:
            told = job.get("progress") or {}
            word = next((word for word in told if word not in ("of", "begun")), None)
            if word is not None:
                status.update(f"{word} {told[word]:,} of {told.get('of', '?'):,}")

        yield tell
