"""POST /v1/tables/{table}/build: an artifact of the table, to answer searches from."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import job_operation, route
from frazil.gateway.http.query_parameters import only, table_of
from frazil.gateway.http.responses import accepted
from frazil.gateway.jobs import submit
from frazil.requests import BUILD, BuildRequest
from frazil.serving import Profiles
from frazil.serving.builds import model_of, must_be_of


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tables/{table}/build", build, gateway),
    ]


@job_operation(
    "Build an artifact of a table",
    BUILD,
    {404: ("profile_not_found",), 409: ("not_searched",), 422: ("bad_build", "bad_profile")},
    table_in_path=True,
)
async def build(gateway: Gateway, request: Request) -> Response:
    """Have the pipeline build what is new; the result is at /v1/jobs/{id}."""
    admin_only(request)
    only(request)
    name = table_of(request)
    body = await json_body(request)
    if not isinstance(body, dict) or {"table", "embedding"} & body.keys():
        raise InvalidInput("a build is {force?, profile?}", code="bad_build", hint="{}")
    wanted = BuildRequest.parse({**body, "table": name})
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    registry = gateway.lake.registry
    profile = None if wanted.profile is None else await asyncio.to_thread(Profiles(registry).get, wanted.profile)
    if profile is not None:
        must_be_of(profile, table.spec)
    model_of(table.spec, profile)
    return accepted(await submit(gateway, BUILD, wanted, identity_of(request)))
