"""Pipeline process: Spark, the committers and the job handlers, built from settings and run until a signal."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

from frazil.runtime.backends import catalog_password, open_parts
from frazil.runtime.data_dir import DataDir
from frazil.runtime.temp_folder import own_scratch_folder
from frazil.settings import Settings


async def run_pipeline(settings: Settings) -> None:
    """The pipeline's process: start Spark, commit every table until SIGTERM, commit what is left, end."""
    from frazil.pipeline import Pipeline, is_alive, note_writer, open_session, starting
    from frazil.pipeline.commit import BatchLimits, SparkCommitTarget, warm_up
    from frazil.pipeline.entities import FoldCommitter, FoldLimits, FoldScheduler
    from frazil.pipeline.jobs import JobRunner
    from frazil.pipeline.maintenance import MaintenanceScheduler, MaintenanceSteps, SparkMaintenance
    from frazil.requests import MAINTENANCE
    from frazil.runtime.job_handlers import job_handlers, job_triggers, open_lanes

    data = DataDir(settings.data_dir)
    own_scratch_folder(data.scratch)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with starting(data.pipeline_file):
        backends = await open_parts(settings)
        session = await asyncio.to_thread(
            open_session,
            catalog_url=settings.catalog_url,
            catalog_name=settings.catalog.name,
            catalog_user=settings.catalog.user or "",
            catalog_password=catalog_password(settings),
            warehouse=backends.lake.warehouse,
            master=settings.pipeline.master,
            driver_memory=settings.pipeline.driver_memory,
            extra=settings.pipeline.spark_conf,
        )
        await asyncio.to_thread(warm_up, session)
    try:
        note = note_writer(backends.journal)
        worker = SparkMaintenance(backends.lake, session, settings.maintenance)
        steps = MaintenanceSteps(backends.lake, worker, settings.maintenance, note)
        lanes = open_lanes()
        handlers = job_handlers(settings, data, backends, session, steps)
        triggers = job_triggers(settings, data, backends)
        pipeline = Pipeline(
            lake=backends.lake,
            bus=backends.bus,
            make_target=lambda name: SparkCommitTarget(
                backends.lake, name, session, keep_seconds=settings.maintenance.keep_seconds
            ),
            is_alive=partial(is_alive, session),
            journal=backends.journal,
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
            make_jobs=lambda: JobRunner(backends.lake, handlers, note, lanes=list(lanes.values()), triggers=triggers),
            make_folding=lambda suspects: FoldScheduler(
                make_folder=lambda name: FoldCommitter(
                    backends.lake, name, session, keep_seconds=settings.maintenance.keep_seconds
                ),
                limits=FoldLimits(settings.pipeline.fold_rows, settings.pipeline.fold_age_seconds),
                snapshot_budget=settings.pipeline.snapshot_budget,
                note=note,
                locations=backends.lake.locations,
                suspects=suspects,
            ),
            make_maintenance=lambda: MaintenanceScheduler(
                backends.lake,
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
        await backends.close()
