"""GET /v1/tables/{table}/health and /v1/health/tables, POST /v1/tables/{table}/maintenance"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from frazil.access import Forbidden, Identity
from frazil.errors import FrazilError, InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.health import PartsHealth
from frazil.gateway.http.authorization import admin_only, identity_of, no_such_table
from frazil.gateway.http.bodies import BodyReader, json_body
from frazil.gateway.http.operation import BODY, FORBIDDEN, PIPELINE, TABLE, JsonObject, JsonObjects, fields, operation
from frazil.gateway.http.query_parameters import only, table_of
from frazil.gateway.http.responses import answer
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
from frazil.registry import submit_job

_SHOWN_ORPHANS = 1000


class Maintenance:
    def __init__(self, gateway: Gateway, bodies: BodyReader) -> None:
        self._gateway = gateway
        self._bodies = bodies
        self._parts = PartsHealth(gateway)

    @operation("The health of a table", "tables", {200: fields(table=str, verdict=Any)}, FORBIDDEN, TABLE)
    async def health(self, request: Request) -> Response:
        only(request)
        name = table_of(request)
        grant = identity_of(request).read_grant(name)
        if grant is None:
            raise no_such_table(name)
        if grant.filters:
            raise Forbidden("this is for who may read all rows of the table", hint="ask whoever gave you the token")
        await self._gateway.directory.refresh()
        table = await self._gateway.directory.table(name)
        return answer(await asyncio.to_thread(self._judged, table))

    @operation("The health of all tables", "tables", {200: fields(tables=JsonObjects)}, TABLE)
    async def health_of_all(self, request: Request) -> Response:
        """Of all tables that the caller may read; one that cannot be judged has its error in the place of figures."""
        only(request)
        identity = identity_of(request)
        await self._gateway.directory.refresh()
        tables = [table for table in self._gateway.directory.tables(histories=True) if _reads_all(identity, table)]
        return answer({"tables": [await asyncio.to_thread(self._told, table) for table in tables]})

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
        body=JsonObject,
    )
    async def ask(self, request: Request) -> Response:
        """With `dry_run` the plan; else a request to the pipeline, whose result is at /v1/jobs/{id}."""
        admin_only(request)
        only(request)
        name = table_of(request)
        wanted = _wanted(await json_body(request, self._bodies))
        what, sort = wanted.what, wanted.sort
        await self._gateway.directory.refresh()
        table = await self._gateway.directory.table(name)
        steps = await asyncio.to_thread(self._steps, table, wanted)
        told: dict[str, Any] = {"table": table.spec.short_name, "what": what, "plan": [step.body() for step in steps]}
        if what == "retention":
            told["retention"] = await asyncio.to_thread(self._retention, table, wanted)
        if wanted.dry_run:
            if what == "remove_orphans":
                told |= await asyncio.to_thread(_orphans, table, steps)
            return answer(told)
        self._parts.pipeline_must_be_there(hint="`frazil status` tells more; --dry-run shows the plan without it")
        params = {"what": what, "sort": list(sort), "all_snapshots": wanted.all_snapshots}
        by = identity_of(request).id
        asked = await asyncio.to_thread(
            submit_job, self._gateway.lake.registry, "maintenance", name, params, asked_by=by
        )
        return answer({**told, "id": asked.id, "state": "waiting"}, 202)

    def _health(self, table: LakeTable) -> Health:
        state = last_runs_of(self._gateway.lake.registry, table.uuid)
        return health_of(table, small_below=small_below(self._gateway.maintenance), compacted_at=state.compacted_at)

    def _judged(self, table: LakeTable) -> dict[str, Any]:
        health = self._health(table)
        steps = plan_maintenance(
            health,
            self._gateway.maintenance,
            snapshot_budget=_tolerated(self._gateway.snapshot_budget),
            now=datetime.now(UTC),
        )
        return {**health.body(), "verdict": health_verdict(steps)}

    def _told(self, table: LakeTable) -> dict[str, Any]:
        try:
            return self._judged(table)
        except FrazilError as error:
            return {"table": table.spec.short_name, **error.body()}

    def _retention(self, table: LakeTable, wanted: Wanted) -> dict[str, Any]:
        """What is beyond its years: the plan that somebody must have seen before it is carried out."""
        now = datetime.now(UTC)
        plan = plan_retention(
            table,
            today=wanted.at or now.date(),
            now=now,
            keep_seconds=self._gateway.maintenance.keep_seconds,
            all_snapshots=wanted.all_snapshots,
        )
        return plan.body()

    def _steps(self, table: LakeTable, wanted: Wanted) -> list[MaintenanceStep]:
        return requested_steps(
            wanted.what,
            table.spec,
            self._health(table),
            self._gateway.maintenance,
            snapshot_budget=self._gateway.snapshot_budget,
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


@dataclass(frozen=True)
class Wanted:
    what: str
    sort: tuple[str, ...]
    dry_run: bool
    all_snapshots: bool
    at: date | None
    """The day that a plan of retention is made for."""


def _wanted(body: Any) -> Wanted:
    if not isinstance(body, dict) or body.keys() - {"what", "sort", "dry_run", "all_snapshots", "at"}:
        raise InvalidInput(
            "maintenance is {what, sort?, dry_run?, all_snapshots?, at?}",
            code="bad_maintenance",
            hint='{"what": "compact"}',
        )
    what, sort, dry_run = body.get("what"), body.get("sort") or [], body.get("dry_run", False)
    all_snapshots, at = body.get("all_snapshots", False), body.get("at")
    if not isinstance(what, str) or not isinstance(dry_run, bool) or not isinstance(all_snapshots, bool):
        raise InvalidInput("`what` is a word, `dry_run` and `all_snapshots` true or false", code="bad_maintenance")
    if (all_snapshots or at is not None) and what != "retention":
        raise InvalidInput("`all_snapshots` and `at` are of retention", code="bad_maintenance", hint="leave them out")
    if at is not None and not dry_run:
        # A day to come would remove rows that are within their years today.
        raise InvalidInput("only a plan is made for another day", code="bad_maintenance", hint='"dry_run": true')
    if not isinstance(sort, list) or not all(isinstance(column, str) for column in sort):
        raise InvalidInput("`sort` is a list of columns", code="bad_maintenance", hint='"sort": ["customer"]')
    return Wanted(what, tuple(sort), dry_run, all_snapshots, None if at is None else _day(at))


def _day(text: Any) -> date:
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput("`at` is a day", code="bad_maintenance", hint='"at": "2030-01-31"') from error


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
