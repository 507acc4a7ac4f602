"""/v1/tables/{table}/artifacts: list, show, verify, promote, roll back; `?profile=` for the shelf of a profile."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput, Unavailable
from frazil.gateway.artifacts import Artifacts
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, whole_table_only
from frazil.gateway.http.operation import FORBIDDEN, PARAMETER, TABLE, Errors, JsonObject, Parameter, operation, route
from frazil.gateway.http.query_parameters import flag, only, seconds, table_of
from frazil.gateway.http.responses import answer
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.lake.catalog import LakeTable
from frazil.serving import Profile
from frazil.serving.artifacts import Shelf

_LONGEST_WAIT_SECONDS = 300.0
_MAX_REASON = 1_000
_ERRORS: Errors = {
    404: ("artifact_not_found", "profile_not_found"),
    409: (
        "artifact_older",
        "artifact_withdrawn",
        "artifact_no_previous",
        "artifact_incomplete",
        "artifact_given_up",
        "not_searched",
    ),
    422: ("bad_profile", "bad_build"),
    500: ("artifact_refused", "artifact_manifest_damaged", "artifact_manifest_missing"),
    503: ("no_search",),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/tables/{table}/artifacts", list_artifacts, gateway),
        route("POST", "/v1/tables/{table}/artifacts/rollback", rollback, gateway),
        route("GET", "/v1/tables/{table}/artifacts/{generation}", show, gateway),
        route("POST", "/v1/tables/{table}/artifacts/{generation}/verify", verify, gateway),
        route("POST", "/v1/tables/{table}/artifacts/{generation}/promote", promote, gateway),
    ]


@operation(
    "The artifacts of a table",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    TABLE,
    _ERRORS,
    query=(Parameter("profile"),),
)
async def list_artifacts(gateway: Gateway, request: Request) -> Response:
    only(request, "profile")
    whole_table_only(request, table_of(request))
    _, _, shelf = await _shelf(gateway, request)
    return answer(await asyncio.to_thread(_artifacts(gateway).listed, shelf))


@operation("One artifact", "search", {200: JsonObject}, FORBIDDEN, TABLE, _ERRORS, query=(Parameter("profile"),))
async def show(gateway: Gateway, request: Request) -> Response:
    only(request, "profile")
    whole_table_only(request, table_of(request))
    _, _, shelf = await _shelf(gateway, request)
    return answer(await asyncio.to_thread(_artifacts(gateway).show, shelf, request.path_params["generation"]))


@operation(
    "Verify the files of an artifact",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    TABLE,
    _ERRORS,
    query=(Parameter("profile"),),
)
async def verify(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request, "profile")
    table, profile, shelf = await _shelf(gateway, request)
    generation = request.path_params["generation"]
    return answer(await asyncio.to_thread(_artifacts(gateway).verify, shelf, generation, table, profile))


@operation(
    "Answer searches from this artifact",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    _ERRORS,
    query=(Parameter("profile"), Parameter("back", bool), Parameter("wait_s", float)),
)
async def promote(gateway: Gateway, request: Request) -> Response:
    """`?back=true` for one that is older than the current one, or was rolled back."""
    admin_only(request)
    only(request, "profile", "back", "wait_s")
    _, _, shelf = await _shelf(gateway, request)
    return answer(
        await _artifacts(gateway).promote(
            shelf,
            request.path_params["generation"],
            going_back=flag(request, "back"),
            wait_seconds=seconds(request, "wait_s", default=0.0, most=_LONGEST_WAIT_SECONDS),
            by=identity_of(request).id,
        )
    )


@operation(
    "Go back to the artifact before",
    "search",
    {200: JsonObject},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    _ERRORS,
    query=(Parameter("profile"), Parameter("reason"), Parameter("wait_s", float)),
)
async def rollback(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request, "profile", "reason", "wait_s")
    reason = request.query_params.get("reason", "").strip()
    if len(reason) > _MAX_REASON:
        raise InvalidInput(f"a reason has at most {_MAX_REASON:,} characters", code="bad_parameter")
    _, _, shelf = await _shelf(gateway, request)
    return answer(
        await _artifacts(gateway).rollback(
            shelf,
            reason=reason or f"rolled back by {identity_of(request).id}",
            wait_seconds=seconds(request, "wait_s", default=0.0, most=_LONGEST_WAIT_SECONDS),
            by=identity_of(request).id,
        )
    )


def _artifacts(gateway: Gateway) -> Artifacts:
    return Artifacts(lake=gateway.lake, bus=gateway.bus, journal=gateway.journal, served=served_of(gateway))


async def _shelf(gateway: Gateway, request: Request) -> tuple[LakeTable, Profile | None, Shelf]:
    name = table_of(request)
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    artifacts = _artifacts(gateway)
    profile = await asyncio.to_thread(artifacts.profile, name, request.query_params.get("profile"))
    return table, profile, artifacts.shelf(name, profile)


def served_of(gateway: Gateway) -> ShelfReaders:
    if gateway.served is None:
        raise Unavailable(
            "this gateway serves no searches",
            code="no_search",
            hint="ask a gateway that does",
            retry_after_seconds=60.0,
        )
    return gateway.served
