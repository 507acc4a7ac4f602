"""`frazil serve gateway|pipeline`: one part alone, as the supervisor or an orchestrator starts it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.verb import local_verb

if TYPE_CHECKING:
    from frazil.settings import Settings

app = typer.Typer(help="Run one part alone, for an orchestrator; `frazil up` runs all of them.", no_args_is_help=True)


@app.command()
@local_verb
def gateway(options: SharedOptions) -> None:
    """The HTTP gateway. Its log lines are always JSON."""
    import uvloop

    _prepare("gateway")
    uvloop.run(_serve_gateway(options.settings()))


@app.command()
@local_verb
def pipeline(options: SharedOptions) -> None:
    """The Spark pipeline. Its log lines are always JSON."""
    import asyncio

    _prepare("pipeline")
    settings = options.settings()
    from frazil.runtime import run_pipeline

    asyncio.run(run_pipeline(settings))


async def _serve_gateway(settings: Settings) -> None:
    from frazil.access import AccessControl
    from frazil.gateway import Gateway
    from frazil.gateway.http import listen, serve
    from frazil.gateway.search import ShelfReaders
    from frazil.runtime import DataDir, open_parts
    from frazil.serving.sql import QueryPool
    from frazil.tables import TableDirectory

    directory = DataDir(settings.data_dir)
    directory.prepare()
    token = directory.admin_token()
    listening = listen(settings.server.host, settings.server.port)
    parts = await open_parts(settings)
    try:
        tables = TableDirectory(parts.lake)
        gateway = Gateway(
            bus=parts.bus,
            lake=parts.lake,
            journal=parts.journal,
            access=AccessControl(
                registry=parts.lake.registry,
                admin_token=token,
                audit_folder=directory.audit,
                settings=settings.access,
            ),
            ingest=settings.ingest,
            pool=QueryPool(settings.query, parts.lake.warehouse, readable=[directory.audit, directory.artifacts]),
            query=settings.query,
            search=settings.search,
            pipeline_file=directory.pipeline_file,
            spill_folder=directory.spill,
            uploads=directory.uploads,
            min_free_bytes=int(settings.min_free_bytes),
            directory=tables,
            served=ShelfReaders(
                lake=parts.lake,
                bus=parts.bus,
                directory=tables,
                models=settings.models,
                settings=settings.search,
                cache=directory.artifacts,
                journal=parts.journal,
            ),
            maintenance=settings.maintenance,
            snapshot_budget=settings.pipeline.snapshot_budget,
            lag_target_seconds=settings.pipeline.lag_target_seconds,
        )
        await serve(gateway, listening, limits=settings.server, drain_seconds=settings.drain_seconds)
    finally:
        await parts.close()


def _prepare(part: str) -> None:
    from frazil.runtime import set_up, watch_supervisor

    set_up(part)
    watch_supervisor(os.environ)
