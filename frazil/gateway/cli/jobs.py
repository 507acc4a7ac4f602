"""`frazil jobs`: what the pipeline was asked to do, and how it stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.gateway.cli.output import AsJson, Config, Data, Url, connected, print_json


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
