"""GET /, /v1/health, /v1/status, /metrics, /v1/journal"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.access import KINDS, Identity
from frazil.errors import Unavailable
from frazil.events.declaration import dead_letters_of, history_of, table_name
from frazil.gateway.gateway import Gateway
from frazil.gateway.health import PartsHealth
from frazil.gateway.http.authorization import IDENTITY, admin_only
from frazil.gateway.http.operation import (
    FORBIDDEN,
    PARAMETER,
    Fields,
    JsonObject,
    JsonObjects,
    Parameter,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, whole_number
from frazil.gateway.http.responses import answer
from frazil.gateway.metrics import CONTENT_TYPE, counter, gauge
from frazil.registry import job_status, open_jobs
from frazil.tables import StreamLag

_LINKS = {
    "health": "/v1/health",
    "status": "/v1/status",
    "tables": "/v1/tables",
    "events": "/v1/tables/{table}/events",
    "query": "/v1/query",
    "artifacts": "/v1/tables/{table}/artifacts",
    "profiles": "/v1/profiles",
    "visibility": "/v1/visibility?token=",
    "tokens": "/v1/tokens",
    "journal": "/v1/journal",
    "metrics": "/metrics",
    "openapi": "/v1/openapi.json",
}
_PIPELINE_COUNTERS = {
    "commits": "Commits of the pipeline since it started.",
    "rows": "Rows committed by the pipeline since it started.",
    "duplicates": "Duplicates that the pipeline left out since it started.",
    "dead_letters": "Events that the pipeline could not commit since it started.",
    "commit_seconds": "Time spent in commits.",
    "stage_seconds": "Time spent in staging.",
    "publish_seconds": "Time spent in publishing snapshots.",
}


def routes(gateway: Gateway) -> list[Route]:
    parts = PartsHealth(gateway)
    return [
        route("GET", "/v1/health", health, parts),
        route("GET", "/v1/status", status, gateway, parts),
        route("GET", "/v1/journal", journal, gateway),
        route("GET", "/metrics", metrics, gateway, parts),
        route("GET", "/", links),
    ]


@operation("What there is", "status", {200: exactly(product=str, links=dict[str, str])}, is_open=True)
async def links(request: Request) -> Response:
    return answer({"product": "frazil", "links": _LINKS})


@operation("The health of the parts", "status", {200: Fields({"status": str}, {"parts": JsonObject})}, is_open=True)
async def health(parts: PartsHealth, request: Request) -> Response:
    """The status alone for everybody, that of each part for who has a token, the reasons for admins.

    Reasons name tables, files and errors of engines.
    """
    body = await parts.health()
    identity: Identity | None = request.scope.get(IDENTITY)
    if identity is None:
        body = {"status": body["status"]}
    elif not identity.is_admin:
        states = {name: {"status": part["status"]} for name, part in body["parts"].items()}
        body = {"status": body["status"], "parts": states}
    return answer(body)


@operation(
    "The standing of tables, searches and jobs",
    "status",
    {200: fields(status=str, parts=JsonObject, tables=JsonObject, search=JsonObjects, jobs=JsonObjects)},
    FORBIDDEN,
)
async def status(gateway: Gateway, parts: PartsHealth, request: Request) -> Response:
    admin_only(request)
    only(request)
    with contextlib.suppress(Unavailable):  # then the tables are as they were last seen, and the parts say so
        await gateway.directory.refresh()
    tables = gateway.directory.tables()
    entries = await asyncio.gather(*(gateway.table_status.status(table) for table in tables))
    report = parts.pipeline_report() or {}
    by_name: dict[str, Any] = {}
    for table, entry in zip(tables, entries, strict=True):
        fed = history_of(table.name) if table.spec.kind == "entity" else table.name
        of_pipeline = (report.get("tables") or {}).get(fed) or {}
        entry["failed_cycles"] = of_pipeline.get("failed_cycles", 0)
        entry["last_error"] = of_pipeline.get("last_error")
        entry["held_back"] = of_pipeline.get("held_back")
        entry["dead_letters"] = _dead_letters(gateway, table.name)
        by_name[table.spec.short_name] = entry
    served = gateway.served
    return answer(
        {
            **await parts.health(),
            "started_at": gateway.started_at,
            "tables": by_name,
            "search": served.status() if served is not None else [],
            "jobs": await asyncio.to_thread(_open_jobs, gateway),
        }
    )


def _dead_letters(gateway: Gateway, name: str) -> int:
    letters = gateway.directory.seen(dead_letters_of(name))
    return letters.rows if letters is not None else 0


def _open_jobs(gateway: Gateway) -> list[dict[str, Any]]:
    """The jobs that are waiting or running."""
    found = []
    with contextlib.suppress(Unavailable):
        registry = gateway.lake.registry
        for job in open_jobs(registry):
            status = job_status(registry, job.id)
            if status["state"] in ("waiting", "running"):
                found.append({name: status.get(name) for name in ("id", "kind", "subject", "state", "progress")})
    return found


@operation(
    "What happened, newest first",
    "status",
    {200: exactly(entries=JsonObjects)},
    FORBIDDEN,
    PARAMETER,
    {422: ("bad_table_name",)},
    query=(Parameter("table"), Parameter("kind"), Parameter("limit", int)),
)
async def journal(gateway: Gateway, request: Request) -> Response:
    """The newest entries first: what happened, to which table."""
    admin_only(request)
    only(request, "table", "kind", "limit")
    table = request.query_params.get("table")
    kind = request.query_params.get("kind")
    limit = whole_number(request, "limit", default=100, most=10_000)
    entries = await asyncio.to_thread(
        gateway.journal.read, limit=limit, table=table_name(table) if table else None, kind=kind
    )
    return answer({"entries": entries})


@operation("Metrics for Prometheus", "status", {200: str}, FORBIDDEN, gives=("text/plain",))
async def metrics(gateway: Gateway, parts: PartsHealth, request: Request) -> Response:
    admin_only(request)
    tables = gateway.directory.tables()
    standings = await asyncio.gather(*(gateway.table_status.standing(table) for table in tables))
    lags = {table.name: standing for table, standing in zip(tables, standings, strict=True)}
    more = [*_of_tables(gateway, lags), *await _of_parts(parts), *_of_pipeline(parts), *_of_workers(gateway)]
    more += _of_quotas(gateway)
    more += gateway.served.metrics() if gateway.served is not None else ()
    more.append(gauge("frazil_gateway_tasks", "Tasks of the gateway's event loop.", [([], len(asyncio.all_tasks()))]))
    return Response(gateway.metrics.text(more), media_type=CONTENT_TYPE)


def _of_tables(gateway: Gateway, lags: dict[str, StreamLag]) -> Iterable[Metric]:
    now = datetime.now(UTC)
    tables = gateway.directory.tables()
    commits = {
        table.name: (now - table.last_commit_at).total_seconds() if table.last_commit_at else None for table in tables
    }
    yield gauge(
        "frazil_table_lag_events",
        "Events on the bus that are not committed.",
        [([name], standing.lag_events) for name, standing in lags.items()],
        "table",
    )
    yield gauge(
        "frazil_table_lag_seconds",
        "Age of the oldest event that is not committed.",
        [([name], standing.lag_seconds) for name, standing in lags.items()],
        "table",
    )
    yield gauge(
        "frazil_table_watermark",
        "Position below which everything is committed.",
        [([name], standing.watermark) for name, standing in lags.items()],
        "table",
    )
    yield gauge(
        "frazil_table_head_sequence",
        "Sequence of the last message on the bus.",
        [([name], standing.head) for name, standing in lags.items()],
        "table",
    )
    yield gauge("frazil_table_rows", "Committed rows.", [([table.name], table.rows) for table in tables], "table")
    letters = [([table.name], _dead_letters(gateway, table.name)) for table in tables if table.spec.is_streamed]
    yield gauge("frazil_table_dead_letters", "Events that could not be committed.", letters, "table")
    yield gauge(
        "frazil_table_last_commit_age_seconds",
        "Time since the newest snapshot.",
        [([name], age) for name, age in commits.items()],
        "table",
    )


async def _of_parts(parts: PartsHealth) -> list[Metric]:
    found = await parts.all()
    up = [([name], float(part["status"] not in ("down", "starting"))) for name, part in found.items()]
    ok = [([name], float(part["status"] == "ok")) for name, part in found.items()]
    return [
        gauge("frazil_part_up", "Whether the part answers.", up, "part"),
        gauge("frazil_part_ok", "Whether the part does what it should.", ok, "part"),
    ]


def _of_quotas(gateway: Gateway) -> Iterable[Metric]:
    quotas = gateway.quotas
    limits = []
    for kind in KINDS:
        limit = quotas.limit(kind)
        of = {"token": limit.per_token, "all": limit.total, "admin": limit.with_admins}
        limits += [([kind, whose], float(most)) for whose, most in of.items()]
    yield gauge(
        "frazil_in_flight",
        "Requests, waits among them, and bytes of bodies in flight.",
        [([kind], quotas.used(kind)) for kind in KINDS],
        "kind",
    )
    yield gauge(
        "frazil_in_flight_limit", "How much may be in flight of a token, of all, with admins.", limits, "kind", "of"
    )
    yield counter(
        "frazil_quota_refusals",
        "Requests refused because a token, or all together, had enough in flight.",
        [([kind, of], count) for kind in KINDS for of, count in quotas.refused(kind).items()],
        "kind",
        "of",
    )


def _of_workers(gateway: Gateway) -> Iterable[Metric]:
    if gateway.pool is None:
        return
    workers = gateway.pool.status()
    states = [([state], workers[state]) for state in ("ready", "busy", "slow")]
    yield gauge("frazil_query_workers", "Query workers by what they do.", states, "state")
    yield gauge("frazil_queries_waiting", "Queries that wait for their turn.", [([], workers["queue"])])
    yield gauge(
        "frazil_queries_stalled_seconds",
        "For how long queries have waited while none came to its turn and none that ran had time left.",
        [([], workers["stalled_seconds"])],
    )
    yield counter("frazil_query_workers_replaced", "Query workers ended and replaced.", [([], workers["replaced"])])


def _of_pipeline(parts: PartsHealth) -> Iterable[Metric]:
    report = parts.pipeline_report()
    if report is None:
        return
    tables: dict[str, dict[str, Any]] = report.get("tables") or {}
    for field, help_text in _PIPELINE_COUNTERS.items():
        values = [([name], figures.get(field)) for name, figures in tables.items()]
        yield counter(f"frazil_pipeline_{field}", help_text, values, "table")
    yield gauge(
        "frazil_pipeline_failed_cycles",
        "Failures of the pipeline in a row.",
        [([name], figures.get("failed_cycles")) for name, figures in tables.items()],
        "table",
    )
