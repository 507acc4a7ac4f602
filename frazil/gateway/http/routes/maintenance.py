"""GET /v1/tables/{table}/health and /v1/health/tables, POST /v1/tables/{table}/maintenance"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.access import Identity
from frazil.errors import FrazilError
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, whole_table_only
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    PIPELINE,
    TABLE,
    JsonObjects,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of
from frazil.gateway.http.responses import accepted, answer
from frazil.gateway.jobs import submit
from frazil.lake.catalog import LakeTable
from frazil.lake.maintenance import (
    Health,
    MaintenanceStep,
    find_orphans,
    health_of,
    health_verdict,
    last_runs_of,
    plan_maintenance,
    plan_retention,
    requested_steps,
    small_below,
)
from frazil.requests import MAINTENANCE, MaintenanceRequest

_SHOWN_ORPHANS = 1000


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/tables/{table}/health", health, gateway),
        route("POST", "/v1/tables/{table}/maintenance", maintain, gateway),
        route("GET", "/v1/health/tables", health_of_all, gateway),
    ]


@operation("The health of a table", "tables", {200: fields(table=str, verdict=Any)}, FORBIDDEN, TABLE)
async def health(gateway: Gateway, request: Request) -> Response:
    only(request)
    name = table_of(request)
    whole_table_only(request, name, masked_ok=True)
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    return answer(await asyncio.to_thread(_judged, gateway, table))


@operation("The health of all tables", "tables", {200: exactly(tables=JsonObjects)}, TABLE)
async def health_of_all(gateway: Gateway, request: Request) -> Response:
    """Of all tables that the caller may read; one that cannot be judged has its error in the place of figures."""
    only(request)
    identity = identity_of(request)
    await gateway.directory.refresh()
    tables = [table for table in gateway.directory.tables(histories=True) if _reads_all(identity, table)]
    return answer({"tables": [await asyncio.to_thread(_judged_or_error, gateway, table) for table in tables]})


@operation(
    "Plan maintenance, or have it done",
    "jobs",
    {
        200: fields(table=str, what=str, plan=JsonObjects),
        202: fields(table=str, what=str, plan=JsonObjects, id=str, state=str),
    },
    FORBIDDEN,
    BODY,
    TABLE,
    PIPELINE,
    {422: ("bad_maintenance", "unknown_column")},
    body=MaintenanceRequest,
)
async def maintain(gateway: Gateway, request: Request) -> Response:
    """With `dry_run` the plan; else a request to the pipeline, whose result is at /v1/jobs/{id}."""
    admin_only(request)
    only(request)
    name = table_of(request)
    wanted = MaintenanceRequest.parse(await json_body(request))
    what = wanted.what
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    steps = await asyncio.to_thread(_steps, gateway, table, wanted)
    plan: dict[str, Any] = {"table": table.spec.short_name, "what": what, "plan": [step.body() for step in steps]}
    if what == "retention":
        plan["retention"] = await asyncio.to_thread(_retention, gateway, table, wanted)
    if wanted.dry_run:
        if what == "remove_orphans":
            plan |= await asyncio.to_thread(_orphans, table, steps)
        return answer(plan)
    hint = "`frazil status` tells more; --dry-run shows the plan without it"
    caller = identity_of(request)
    job = await submit(gateway, MAINTENANCE, wanted, caller, subject=name, without_pipeline=hint)
    return accepted(job, plan)


def _health(gateway: Gateway, table: LakeTable) -> Health:
    state = last_runs_of(gateway.lake.registry, table.uuid)
    return health_of(table, small_below=small_below(gateway.maintenance), compacted_at=state.compacted_at)


def _judged(gateway: Gateway, table: LakeTable) -> dict[str, Any]:
    health = _health(gateway, table)
    steps = plan_maintenance(
        health,
        gateway.maintenance,
        snapshot_budget=_tolerated(gateway.snapshot_budget),
        now=datetime.now(UTC),
    )
    return {**health.body(), "verdict": health_verdict(steps)}


def _judged_or_error(gateway: Gateway, table: LakeTable) -> dict[str, Any]:
    try:
        return _judged(gateway, table)
    except FrazilError as error:
        return {"table": table.spec.short_name, **error.body()}


def _retention(gateway: Gateway, table: LakeTable, wanted: MaintenanceRequest) -> dict[str, Any]:
    """The rows beyond their years: the plan that somebody must have seen before it is carried out."""
    now = datetime.now(UTC)
    plan = plan_retention(
        table,
        today=wanted.day or now.date(),
        now=now,
        keep_seconds=gateway.maintenance.keep_seconds,
        all_snapshots=wanted.all_snapshots,
    )
    return plan.body()


def _steps(gateway: Gateway, table: LakeTable, wanted: MaintenanceRequest) -> list[MaintenanceStep]:
    return requested_steps(
        wanted.what,
        table.spec,
        _health(gateway, table),
        gateway.maintenance,
        snapshot_budget=gateway.snapshot_budget,
        now=datetime.now(UTC),
        sort=wanted.sort,
        all_snapshots=wanted.all_snapshots,
    )


def _tolerated(budget: int) -> int:
    """Routine expiry begins a quarter beyond the budget and looks every few commits: until then all is well."""
    return budget + budget // 2


def _reads_all(identity: Identity, table: LakeTable) -> bool:
    grant = identity.read_grant(table.name)
    return grant is not None and not grant.filters


def _orphans(table: LakeTable, steps: list[MaintenanceStep]) -> dict[str, Any]:
    found = [orphan for step in steps if step.before for orphan in find_orphans(table, before=step.before)]
    return {
        "orphans": len(found),
        "bytes": sum(orphan.bytes for orphan in found),
        "files": [
            {"path": orphan.path, "bytes": orphan.bytes, "modified_at": orphan.modified_at.isoformat()}
            for orphan in found[:_SHOWN_ORPHANS]
        ],
    }
