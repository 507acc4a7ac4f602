"""/v1/tables/{table}/trials: try indexes and models, read what was measured, promote the best."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.health import PartsHealth
from frazil.gateway.http.authorization import admin_only, identity_of, whole_table_only
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    PARAMETER,
    TABLE,
    Errors,
    JsonObject,
    JsonObjects,
    Parameter,
    exactly,
    job_operation,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of, whole_number
from frazil.gateway.http.responses import accepted, answer
from frazil.gateway.jobs import submit
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import read_trials
from frazil.requests import TRIAL, TrialRequest

_NO_BEST: Errors = {
    404: ("model_not_found", "not_searched", "no_trials", "no_trial_qualifies", "profile_not_found"),
    409: ("model_moved",),
    422: ("bad_trial", "no_model", "nothing_in_common"),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tables/{table}/trials", run, gateway),
        route("GET", "/v1/tables/{table}/trials", list_trials, gateway),
        route("POST", "/v1/tables/{table}/trials/best", best, gateway),
        route("DELETE", "/v1/tables/{table}/trials/best", forget_best, gateway),
    ]


@job_operation(
    "Try indexes and models",
    TRIAL,
    {
        404: ("not_searched",),
        413: ("too_large",),
        422: ("bad_trial", "bad_index_config", "bad_build", "bad_embedding"),
    },
    table_in_path=True,
)
async def run(gateway: Gateway, request: Request) -> Response:
    """Have the pipeline try; the result is at /v1/jobs/{id}."""
    admin_only(request)
    only(request)
    name = table_of(request)
    body = await json_body(request)
    if not isinstance(body, dict) or "table" in body:
        raise InvalidInput("a trial is {kinds?, grid?, search?, models?, …}", code="bad_trial", hint="{}")
    table = await _table(gateway, name)
    PartsHealth(gateway).pipeline_must_be_there()
    wanted = await asyncio.to_thread(_checked, gateway, table, body)
    return accepted(await submit(gateway, TRIAL, wanted, identity_of(request)))


def _checked(gateway: Gateway, table: LakeTable, body: dict[str, Any]) -> TrialRequest:
    from frazil.serving.trials import model_of, parse_trial

    wanted = parse_trial({**body, "table": table.name})
    model_of(table.spec)
    return wanted


@operation(
    "What trials have measured, newest first",
    "search",
    {200: exactly(table=str, trials=JsonObjects)},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    query=(Parameter("run"), Parameter("limit", int)),
)
async def list_trials(gateway: Gateway, request: Request) -> Response:
    """What was measured, newest first, for who may read all of the table."""
    only(request, "run", "limit")
    limit = whole_number(request, "limit", default=1000, most=10_000)
    table = await _readable(gateway, request)
    found = await asyncio.to_thread(_listed, gateway, table, request.query_params.get("run"), limit)
    return answer({"table": table.spec.short_name, "trials": found})


def _listed(gateway: Gateway, table: LakeTable, run: str | None, limit: int) -> Any:
    from frazil.serving.trials import trial_json

    return [trial_json(row) for row in read_trials(gateway.lake, table.name, run=run)[::-1][:limit]]


@operation(
    "The best trial under a rule; an admin may promote it",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    BODY,
    TABLE,
    _NO_BEST,
    body=JsonObject,
)
async def best(gateway: Gateway, request: Request) -> Response:
    """The winner under a rule; an admin may promote it."""
    only(request)
    table = await _readable(gateway, request)
    body = await json_body(request)
    if isinstance(body, dict) and body.get("promote"):
        admin_only(request)
    return answer(await asyncio.to_thread(_best, gateway, table, body))


def _best(gateway: Gateway, table: LakeTable, body: Any) -> dict[str, Any]:
    from frazil.serving.trials import find_best, parse_best

    best = find_best(gateway.lake, table.name, parse_best(body))
    if best["promoted"]:
        gateway.journal.append(
            "index_chosen", table=table.name, shelf=best["shelf"], model=best["model"], index=best["config"]
        )
    return best


@operation(
    "Back to the default index",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    TABLE,
    _NO_BEST,
    query=(Parameter("profile"), Parameter("model")),
)
async def forget_best(gateway: Gateway, request: Request) -> Response:
    """Back to the default index."""
    admin_only(request)
    only(request, "profile", "model")
    table = await _table(gateway, table_of(request))
    words = {name: request.query_params.get(name) for name in ("profile", "model")}
    return answer(await asyncio.to_thread(_forgotten, gateway, table, words))


def _forgotten(gateway: Gateway, table: LakeTable, words: dict[str, str | None]) -> dict[str, Any]:
    from frazil.serving.trials import forget

    forgotten = forget(gateway.lake, table.name, profile=words["profile"], model=words["model"])
    gateway.journal.append("index_forgotten", table=table.name, shelf=forgotten["shelf"], model=forgotten["model"])
    return forgotten


async def _readable(gateway: Gateway, request: Request) -> LakeTable:
    name = table_of(request)
    whole_table_only(request, name)
    return await _table(gateway, name)


async def _table(gateway: Gateway, name: str) -> LakeTable:
    await gateway.directory.refresh()
    return await gateway.directory.table(name)
