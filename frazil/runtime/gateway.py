"""Gateway process: the gateway and all its parts, built from settings and served until a signal."""

from __future__ import annotations

from pathlib import Path

from frazil.access import AccessControl, Quotas
from frazil.bus import EventBus
from frazil.events.decoding import Limits
from frazil.gateway import Gateway, IngestSettings, Metrics
from frazil.gateway.http import listen, serve
from frazil.gateway.ingest import PartitionBudget, TableWriters
from frazil.gateway.query import Queries
from frazil.gateway.search import ShelfReaders
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake
from frazil.runtime.backends import Backends, open_parts
from frazil.runtime.data_dir import DataDir
from frazil.serving import Profiles, SearchSettings
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.settings import Settings
from frazil.storage import Journal
from frazil.tables import TableDirectory, TableResolver, TableStatus


async def run_gateway(settings: Settings) -> None:
    """The gateway's process: listen, connect to the backends, serve until SIGTERM, finish what is under way."""
    data = DataDir(settings.data_dir)
    data.prepare()
    token = data.admin_token()
    listening = listen(settings.server.host, settings.server.port)
    backends = await open_parts(settings)
    try:
        gateway = _from_settings(settings, data, backends, token)
        await serve(gateway, listening, limits=settings.server, drain_seconds=settings.drain_seconds)
    finally:
        await backends.close()


def _from_settings(settings: Settings, data: DataDir, backends: Backends, admin_token: str) -> Gateway:
    bus, lake, journal = backends.bus, backends.lake, backends.journal
    directory = TableDirectory(lake)
    return assemble_gateway(
        bus=bus,
        lake=lake,
        journal=journal,
        access=AccessControl(
            registry=lake.registry, admin_token=admin_token, audit_folder=data.audit, settings=settings.access
        ),
        ingest=settings.ingest,
        pool=QueryPool(settings.query, lake.warehouse, readable=[data.audit, data.artifacts]),
        query=settings.query,
        search=settings.search,
        pipeline_file=data.pipeline_file,
        spill_folder=data.spill,
        uploads=data.uploads,
        min_free_bytes=int(settings.min_free_bytes),
        directory=directory,
        served=ShelfReaders(
            lake=lake,
            bus=bus,
            directory=directory,
            models=settings.models,
            settings=settings.search,
            cache=data.artifacts,
            journal=journal,
        ),
        maintenance=settings.maintenance,
        snapshot_budget=settings.pipeline.snapshot_budget,
        lag_target_seconds=settings.pipeline.lag_target_seconds,
    )


def assemble_gateway(
    *,
    bus: EventBus,
    lake: Lake,
    journal: Journal,
    access: AccessControl,
    ingest: IngestSettings,
    pool: QueryPool | None = None,
    query: QuerySettings | None = None,
    pipeline_file: Path | None = None,
    spill_folder: Path | None = None,
    uploads: Path | None = None,
    min_free_bytes: int = 500_000_000,
    directory: TableDirectory | None = None,
    served: ShelfReaders | None = None,
    maintenance: MaintenanceSettings | None = None,
    snapshot_budget: int = 100,
    lag_target_seconds: float = 30.0,
    search: SearchSettings | None = None,
) -> Gateway:
    """The gateway with its parts. Without a pool it answers no queries, without `served` no searches."""
    metrics = Metrics()
    directory = directory or TableDirectory(lake)
    writers = TableWriters(
        bus=bus,
        directory=directory,
        metrics=metrics,
        window_seconds=ingest.dedupe_window_hours * 3600,
        spill_folder=spill_folder,
    )
    gateway = Gateway(
        bus=bus,
        lake=lake,
        journal=journal,
        access=access,
        ingest=ingest,
        metrics=metrics,
        directory=directory,
        writers=writers,
        table_status=TableStatus(directory, writers.stream_of),
        quotas=Quotas.of(
            access.settings, requests=ingest.max_concurrent_requests, memory_bytes=int(ingest.max_memory_bytes)
        ),
        limits=_limits(ingest),
        partition_budget=PartitionBudget(ingest.max_partitions_per_day),
        maintenance=maintenance or MaintenanceSettings(),
        pool=pool,
        served=served,
        pipeline_file=pipeline_file,
        uploads=uploads,
        min_free_bytes=min_free_bytes,
        snapshot_budget=snapshot_budget,
        lag_target_seconds=lag_target_seconds,
    )
    if pool is None:
        return gateway
    tail_bytes = int((query or QuerySettings()).tail_memory)
    resolver = TableResolver(directory, writers.stream_of, journal, max_tail_bytes=tail_bytes)
    gateway.queries = Queries(pool=pool, resolver=resolver, audit=access.audit)
    if served is not None:
        # Not before: their engines take a moment to load.
        from frazil.gateway.search import Searches

        gateway.searches = Searches(
            pool=pool,
            resolver=resolver,
            directory=directory,
            shelves=served,
            profiles=Profiles(lake.registry),
            audit=access.audit,
            settings=search,
        )
    return gateway


def _limits(ingest: IngestSettings) -> Limits:
    return Limits(
        max_body_bytes=int(ingest.max_body_bytes),
        max_event_bytes=int(ingest.max_event_bytes),
        max_events=ingest.max_events,
        max_depth=ingest.max_depth,
        max_fields=ingest.max_fields,
        max_partitions=ingest.max_partitions_per_request,
    )
