"""Jobs of verbs: submitted by kind, with a line of progress, waited for, and reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.cli.output import Output, console

if TYPE_CHECKING:
    from frazil.client import Client

Render = Callable[[dict[str, Any]], None]


def run_job(
    client: Client,
    output: Output,
    kind: str,
    body: Mapping[str, Any],
    render: Render,
    *,
    table: str | None = None,
    timeout: float,
) -> dict[str, Any]:
    """Submit a job of a kind of `frazil.requests.JOB_KINDS`, wait for it and show its result."""
    given = {name: value for name, value in body.items() if value is not None}
    with _progress(output) as on_progress:
        done = client.jobs.run(kind, given, table=table, timeout_s=timeout, on_progress=on_progress)
    output.show(done, render)
    return done


def await_job(client: Client, output: Output, job: Mapping[str, Any], render: Render, *, timeout: float) -> None:
    """Wait for a job that was submitted in its own way, as by an upload, and show its result."""
    with _progress(output) as on_progress:
        done = client.jobs.wait(str(job["id"]), timeout_s=timeout, on_progress=on_progress)
    output.show(done, render)


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A status line on a terminal, as a callable that takes each state of the job; elsewhere None."""
    if output.as_json or not sys.stderr.isatty():
        yield None
        return
    with console(stderr=True).status("waiting for the pipeline") as status:

        def update(job: dict[str, Any]) -> None:
            done = job.get("progress") or {}
            unit = next((name for name in done if name not in ("of", "begun")), None)
            if unit is not None:
                status.update(f"{unit} {done[unit]:,} of {done.get('of', '?'):,}")

        yield update
