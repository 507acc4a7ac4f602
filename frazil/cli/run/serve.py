"""`frazil serve gateway|pipeline`: one part alone, as the supervisor or an orchestrator starts it."""

from __future__ import annotations

import os

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.verb import local_verb

app = typer.Typer(help="Run one part alone, for an orchestrator; `frazil up` runs all of them.", no_args_is_help=True)


@app.command()
@local_verb
def gateway(options: SharedOptions) -> None:
    """The HTTP gateway. Its log lines are always JSON."""
    import uvloop

    _prepare("gateway")
    settings = options.settings()
    from frazil.runtime import run_gateway

    uvloop.run(run_gateway(settings))


@app.command()
@local_verb
def pipeline(options: SharedOptions) -> None:
    """The Spark pipeline. Its log lines are always JSON."""
    import asyncio

    _prepare("pipeline")
    settings = options.settings()
    from frazil.runtime import run_pipeline

    asyncio.run(run_pipeline(settings))


def _prepare(part: str) -> None:
    from frazil.runtime import set_up, watch_supervisor

    set_up(part)
    watch_supervisor(os.environ)
