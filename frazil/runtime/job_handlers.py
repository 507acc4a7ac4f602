"""Job handlers: the code that runs the jobs of each kind, their lanes, and the triggers that submit jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.embedding import OWN
from frazil.errors import Unavailable
from frazil.events.declaration import TableSpec
from frazil.lake.catalog import LakeTable
from frazil.pipeline.embeddings import EmbeddingJobs, EmbedTrigger
from frazil.pipeline.entities import FoldCommitter
from frazil.pipeline.jobs import EMBED as EMBED_POOL
from frazil.pipeline.jobs import BusSender, JobHandler, JobTrigger, Lane, SparkTasks
from frazil.pipeline.maintenance import MaintenanceJobs, MaintenanceSteps
from frazil.pipeline.sources.csv import CsvLoads, FolderTrigger, UnpackLimits
from frazil.pipeline.sources.postgres import ArchiveTrigger, LoadServices, PostgresLoads
from frazil.registry import Job, submit_job
from frazil.requests import BUILD, CSV, EMBED, JOB_KINDS, MAINTENANCE, POSTGRES, TRIAL, EmbedRequest, JobKind
from frazil.runtime.data_dir import DataDir
from frazil.serving.artifacts import ShelfCleanup, announce
from frazil.serving.builds import KEPT, BuildHandler, BuildServices, BuildTrigger
from frazil.serving.trials import TrialHandler
from frazil.settings import Settings
from frazil.tables import create_table

if TYPE_CHECKING:
    from frazil.runtime.backends import Backends


_ANNOUNCE_SECONDS = 10.0
_T = TypeVar("_T")


def open_lanes() -> dict[str, Lane]:
    """The lanes of all kinds of jobs, by name."""
    lanes: dict[str, list[JobKind]] = {}
    for kind in JOB_KINDS.values():
        lanes.setdefault(kind.lane, []).append(kind)
    return {
        name: Lane([kind.name for kind in kinds], gives_way=any(kind.gives_way for kind in kinds))
        for name, kinds in lanes.items()
    }


def job_handlers(
    settings: Settings, data: DataDir, parts: Backends, session: Any, maintenance: MaintenanceSteps
) -> dict[str, JobHandler]:
    """To be called on the loop that the bus belongs to; the jobs themselves run in threads. `session` is Spark's, and
    only passed on."""
    loop = asyncio.get_running_loop()

    def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
        making = create_table(parts.bus, parts.lake, spec, location=location)
        return asyncio.run_coroutine_threadsafe(making, loop).result()

    def fold(name: str) -> None:
        while FoldCommitter(parts.lake, name, session).fold() is not None:
            pass

    def embed(table: LakeTable, model: str) -> Job:
        searched = table.spec.searched
        is_shadow = model != OWN and searched is not None and (searched.vector is not None or model != searched.model)
        request = EmbedRequest(table=table.name, model=model, shadow=is_shadow)
        return submit_job(parts.lake.registry, EMBED.name, table.name, request.params(), asked_by="build")

    def announce_artifact(shelf: str, generation: str) -> None:
        _on(loop, announce(parts.bus, shelf, generation), "announce an artifact")

    tools = LoadServices(parts.lake, SparkTasks(session), make, BusSender(parts.bus, parts.lake), fold)
    return {
        CSV.name: CsvLoads(tools.lake, tools.tasks, make, tools.sender, _unpack_limits(settings)),
        POSTGRES.name: PostgresLoads(tools, settings.sources, reports=data.reports, mail=settings.mail),
        EMBED.name: EmbeddingJobs(tools.lake, SparkTasks(session, EMBED_POOL), settings.models),
        BUILD.name: BuildHandler(
            parts.lake, settings.search, data.builds, BuildServices(fold, embed, announce_artifact)
        ),
        TRIAL.name: TrialHandler(tools.lake, settings.models, settings.search, scratch=data.builds),
        MAINTENANCE.name: MaintenanceJobs(
            maintenance, settings.maintenance, snapshot_budget=settings.pipeline.snapshot_budget
        ),
    }


def job_triggers(settings: Settings, data: DataDir, parts: Backends) -> list[JobTrigger]:
    registry = parts.lake.registry
    triggers: list[JobTrigger] = [FolderTrigger(name, watched, registry) for name, watched in settings.watch.items()]
    triggers += [ArchiveTrigger(name, source, registry) for name, source in settings.sources.items()]
    triggers.append(EmbedTrigger(parts.lake, settings.pipeline))
    triggers.append(BuildTrigger(parts.lake, settings.search))
    triggers.append(ShelfCleanup(parts.lake, settings.search, data.builds / KEPT, parts.journal.append))
    return triggers


def _unpack_limits(settings: Settings) -> UnpackLimits:
    ingest = settings.ingest
    return UnpackLimits(int(ingest.max_unpacked_bytes), ingest.max_unpack_ratio, int(settings.min_free_bytes))


def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T], doing: str) -> _T:
    """From a job's thread, on the loop; a bus that does not answer keeps no job waiting for ever."""
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result(_ANNOUNCE_SECONDS)
    except TookTooLong as error:
        raise Unavailable(f"cannot {doing}: the bus does not answer", code="bus_unavailable") from error
