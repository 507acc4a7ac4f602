"""The bulk jobs of a pipeline: who does which kind, and what asks for them by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from frazil.events import TableSpec
from frazil.lake import LakeTable
from frazil.pipeline.csv.job import CsvLoads
from frazil.pipeline.csv.watch import FolderWatch
from frazil.pipeline.embed.ask import KIND as EMBED
from frazil.pipeline.embed.job import Embeddings
from frazil.pipeline.embed.timer import EmbedTimer
from frazil.pipeline.folder import Folder
from frazil.pipeline.jobs import Doer, Timer
from frazil.pipeline.postgres.job import PostgresLoads
from frazil.pipeline.postgres.nightly import Nightly
from frazil.pipeline.postgres.refresh import Tools
from frazil.pipeline.sending import BusSender
from frazil.pipeline.tasks import SparkTasks
from frazil.runtime.datadir import DataDir
from frazil.runtime.declare import make_table
from frazil.serving.trials.ask import KIND as TRIAL
from frazil.serving.trials.job import Trials
from frazil.settings import Settings

if TYPE_CHECKING:
    from frazil.runtime import Parts


def bulk_jobs(settings: Settings, data: DataDir, parts: Parts, session: Any) -> tuple[dict[str, Doer], list[Timer]]:
    """To be called on the loop that the bus belongs to; the jobs themselves run in threads. `session` is Spark's, and
    only passed on."""
    loop = asyncio.get_running_loop()

    def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
        making = make_table(parts.bus, parts.lake, spec, location=location)
        return asyncio.run_coroutine_threadsafe(making, loop).result()

    def fold(name: str) -> None:
        while Folder(parts.lake, name, session).fold() is not None:
            pass

    tools = Tools(parts.lake, SparkTasks(session), make, BusSender(parts.bus, parts.lake), fold)
    doers: dict[str, Doer] = {
        "csv": CsvLoads(tools.lake, tools.tasks, make, tools.sender),
        "postgres": PostgresLoads(tools, settings.sources, reports=data.reports, mail=settings.mail),
        EMBED: Embeddings(tools.lake, tools.tasks, settings.models),
        TRIAL: Trials(tools.lake, settings.models, settings.search, scratch=data.builds),
    }
    registry = parts.lake.registry
    timers: list[Timer] = [FolderWatch(name, watched, registry) for name, watched in settings.watch.items()]
    timers += [Nightly(name, source, registry) for name, source in settings.sources.items()]
    timers.append(EmbedTimer(parts.lake, settings.pipeline))
    return doers, timers
