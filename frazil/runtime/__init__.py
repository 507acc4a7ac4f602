"""Runtime: live objects built from settings. The one place that wires parts together."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from frazil.bus import EventBus, open_bus
from frazil.errors import Misconfigured, Unavailable
from frazil.lazy import lazy_door
from frazil.runtime.data_dir import DataDir
from frazil.runtime.temp_folder import own_scratch_folder
from frazil.settings import Settings
from frazil.storage import Journal, Warehouse

if TYPE_CHECKING:
    from frazil.lake.catalog import Lake
    from frazil.runtime.data_dir import check_catalog as check_catalog
    from frazil.runtime.data_dir import check_disk as check_disk
    from frazil.runtime.data_dir import read_json as read_json
    from frazil.runtime.data_dir import write_json as write_json
    from frazil.runtime.embedded_parts import STOP_ORDER as STOP_ORDER
    from frazil.runtime.embedded_parts import answers as answers
    from frazil.runtime.embedded_parts import ask_health as ask_health
    from frazil.runtime.embedded_parts import supervised_parts as supervised_parts
    from frazil.runtime.logs import set_up as set_up
    from frazil.runtime.machine_checks import check_java as check_java
    from frazil.runtime.machine_checks import check_port as check_port
    from frazil.runtime.machine_checks import free_port as free_port
    from frazil.runtime.processes import of_run as of_run
    from frazil.runtime.processes import watch_supervisor as watch_supervisor
    from frazil.runtime.supervisor import PartState as PartState
    from frazil.runtime.supervisor import Screen as Screen
    from frazil.runtime.supervisor import SupervisedPart as SupervisedPart
    from frazil.runtime.supervisor import Supervisor as Supervisor
    from frazil.runtime.supervisor import end_leftovers as end_leftovers

__getattr__, __all__ = lazy_door(__name__)
__all__ += ["Backends", "DataDir", "open_journal", "open_parts", "open_the_lake", "open_warehouse", "run_pipeline"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backends:
    """What gateway and pipeline share: the bus, the lake, the journal."""

    bus: EventBus
    lake: Lake
    journal: Journal

    async def close(self) -> None:
        await self.bus.close()
        self.lake.close()


async def open_parts(settings: Settings) -> Backends:
    """Connect to everything. A bus that is still starting is waited for."""
    bus = await connect_bus(settings)
    lake = await asyncio.to_thread(open_the_lake, settings)
    return Backends(bus, lake, open_journal(settings))


async def connect_bus(settings: Settings) -> EventBus:
    """The bus, once it is there and has shown that its acks are true. Raises `Misconfigured` if they are not."""
    url = settings.bus.url
    if url is None:
        raise Misconfigured("there is no bus to connect to", hint="start with `frazil up`, or set bus.url")
    told = False
    while True:
        try:
            bus = await open_bus(
                url, credentials=bus_credentials(settings), max_bytes=int(settings.bus.max_stream_bytes)
            )
            try:
                log.info("the bus keeps its word: %s", await bus.check())
            except BaseException:
                await bus.close()
                raise
            return bus
        except Unavailable as error:
            if not told:
                log.info("waiting for the bus: %s", error)
            told = True
            await asyncio.sleep(0.1)


def bus_credentials(settings: Settings) -> Mapping[str, str]:
    bus = settings.bus
    words = {
        "user": bus.user,
        "password": bus.password.get_secret_value() if bus.password else None,
        "system_user": bus.system_user,
        "system_password": bus.system_password.get_secret_value() if bus.system_password else None,
    }
    return {name: word for name, word in words.items() if word}


def open_warehouse(settings: Settings) -> Warehouse:
    warehouse = settings.warehouse
    secret = warehouse.secret_access_key
    return Warehouse(
        settings.warehouse_url,
        endpoint=warehouse.endpoint,
        region=warehouse.region,
        path_style=warehouse.path_style,
        access_key_id=warehouse.access_key_id or "",
        secret_access_key=secret.get_secret_value() if secret else "",
    )


def open_the_lake(settings: Settings) -> Lake:
    from frazil.lake.catalog import open_lake

    return open_lake(
        settings.catalog_url,
        open_warehouse(settings),
        name=settings.catalog.name,
        user=settings.catalog.user or "",
        password=_catalog_password(settings),
    )


def _catalog_password(settings: Settings) -> str:
    return settings.catalog.password.get_secret_value() if settings.catalog.password else ""


def open_journal(settings: Settings) -> Journal:
    return Journal(settings.data_dir / "journal")


async def run_pipeline(settings: Settings) -> None:
    """The pipeline's process: start Spark, commit every table until SIGTERM, commit what is left, end."""

    import frazil.runtime.job_handlers as wiring
    from frazil.pipeline import Pipeline, is_alive, note_writer, open_session, starting
    from frazil.pipeline.commit import BatchLimits, SparkCommitTarget, warm_up
    from frazil.pipeline.entities import FoldCommitter, FoldLimits, FoldScheduler
    from frazil.pipeline.jobs import JobRunner
    from frazil.pipeline.maintenance import MaintenanceScheduler, MaintenanceSteps, SparkMaintenance
    from frazil.requests import MAINTENANCE

    data = DataDir(settings.data_dir)
    own_scratch_folder(data.scratch)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with starting(data.pipeline_file):
        parts = await open_parts(settings)
        session = await asyncio.to_thread(
            open_session,
            catalog_url=settings.catalog_url,
            catalog_name=settings.catalog.name,
            catalog_user=settings.catalog.user or "",
            catalog_password=_catalog_password(settings),
            warehouse=parts.lake.warehouse,
            master=settings.pipeline.master,
            driver_memory=settings.pipeline.driver_memory,
            extra=settings.pipeline.spark_conf,
        )
        await asyncio.to_thread(warm_up, session)
    try:
        note = note_writer(parts.journal)
        worker = SparkMaintenance(parts.lake, session, settings.maintenance)
        steps = MaintenanceSteps(parts.lake, worker, settings.maintenance, note)
        lanes = wiring.open_lanes()
        handlers = wiring.job_handlers(settings, data, parts, session, steps)
        triggers = wiring.job_triggers(settings, data, parts)
        pipeline = Pipeline(
            lake=parts.lake,
            bus=parts.bus,
            make_target=lambda name: SparkCommitTarget(
                parts.lake, name, session, keep_seconds=settings.maintenance.keep_seconds
            ),
            is_alive=partial(is_alive, session),
            journal=parts.journal,
            report_path=data.pipeline_file,
            suspects_path=data.suspects_file,
            window_seconds=settings.ingest.dedupe_window_hours * 3600,
            limits=BatchLimits(
                max_rows=settings.pipeline.max_batch_rows,
                max_bytes=int(settings.pipeline.max_batch_bytes),
                max_age_seconds=settings.pipeline.max_batch_age_seconds,
            ),
            parallel_tables=settings.pipeline.parallel_tables,
            degraded_after_failures=settings.pipeline.degraded_after_failures,
            snapshot_budget=settings.pipeline.snapshot_budget,
            make_jobs=lambda: JobRunner(parts.lake, handlers, note, lanes=list(lanes.values()), triggers=triggers),
            make_folding=lambda suspects: FoldScheduler(
                make_folder=lambda name: FoldCommitter(
                    parts.lake, name, session, keep_seconds=settings.maintenance.keep_seconds
                ),
                limits=FoldLimits(settings.pipeline.fold_rows, settings.pipeline.fold_age_seconds),
                snapshot_budget=settings.pipeline.snapshot_budget,
                note=note,
                locations=parts.lake.locations,
                suspects=suspects,
            ),
            make_maintenance=lambda: MaintenanceScheduler(
                parts.lake,
                steps,
                lanes[MAINTENANCE.lane],
                settings.maintenance,
                snapshot_budget=settings.pipeline.snapshot_budget,
            ),
            held_tables=steps.held,
        )
        stopping = asyncio.create_task(stopped.wait())
        stopping.add_done_callback(lambda _: pipeline.stop())
        await pipeline.run()
        stopping.cancel()
    finally:
        # The JVM ends with this process, by its own shutdown hooks; waiting for them here would only delay the stop.
        await parts.close()
