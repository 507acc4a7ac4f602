"""POST /v1/loads/csv, /v1/loads/postgres, /v1/tables/{table}/loads: whole sources become rows, by the pipeline."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.health import PartsHealth
from frazil.gateway.http.authorization import admin_only, identity_of, ingest_only, whole_table_only
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    FORBIDDEN,
    PARAMETER,
    TABLE,
    Errors,
    JsonObjects,
    Parameter,
    exactly,
    job_operation,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of, whole_number
from frazil.gateway.http.responses import accepted, answer
from frazil.gateway.http.uploads import Uploads
from frazil.gateway.jobs import submit
from frazil.pipeline.sources.csv import parse_load
from frazil.requests import CSV, POSTGRES, LoadRequest, PostgresRequest
from frazil.tables import newest_loads

_TEXTS = ("mode", "delimiter", "quote", "escape", "encoding", "max_bad", "source")
_MOST_LOADS = 10_000
_BAD_LOAD: Errors = {
    422: ("bad_load", "bad_csv_option", "bad_column", "bad_column_name", "bad_columns", "bad_type", "bad_check")
}
_UPLOADS: Errors = {
    413: ("disk_full",),
    429: ("upload_quota", "too_many_jobs"),
    503: ("no_uploads", "disk_full"),
}


def routes(gateway: Gateway) -> list[Route]:
    uploads = Uploads(gateway)
    return [
        route("POST", "/v1/loads/csv", csv, gateway),
        route("POST", "/v1/loads/postgres", postgres, gateway),
        route("GET", "/v1/tables/{table}/loads", list_loads, gateway),
        route("POST", "/v1/tables/{table}/loads", upload, gateway, uploads),
    ]


@job_operation(
    "Load files that are on the machine of the pipeline",
    CSV,
    _BAD_LOAD,
)
async def csv(gateway: Gateway, request: Request) -> Response:
    """Files that are on the pipeline's machine. It reads them with its own rights: for admins."""
    admin_only(request)
    only(request)
    body = await json_body(request)
    load = parse_load({**body, "uploaded": False} if isinstance(body, dict) else body)
    for path in load.files:
        if not os.path.isabs(path):
            raise InvalidInput(f"{path[:200]!r} is no absolute path", code="bad_load", hint="write it from / on")
    return accepted(await submit(gateway, CSV, load, identity_of(request)))


@job_operation(
    "Archive or refresh from a Postgres",
    POSTGRES,
    {422: ("bad_load",)},
)
async def postgres(gateway: Gateway, request: Request) -> Response:
    """An archive or a refresh from a source that the pipeline's settings name."""
    admin_only(request)
    only(request)
    wanted = PostgresRequest.parse(await json_body(request))
    return accepted(await submit(gateway, POSTGRES, wanted, identity_of(request)))


@job_operation(
    "Send a file and load it",
    CSV,
    _BAD_LOAD,
    _UPLOADS,
    query=(
        Parameter("filename"),
        Parameter("header", bool),
        Parameter("null_words"),
        *(Parameter(name) for name in _TEXTS),
    ),
    body=None,
    takes=("application/octet-stream",),
)
async def upload(gateway: Gateway, uploads: Uploads, request: Request) -> Response:
    """The body is the file, plain or packed, up to `ingest.max_upload_bytes`."""
    name = table_of(request)
    ingest_only(request, name)
    only(request, "filename", "header", "null_words", *_TEXTS)
    path = uploads.place(request.query_params.get("filename", ""))
    PartsHealth(gateway).pipeline_must_be_there()
    load = parse_load({"table": name, "files": [str(path)], "uploaded": True, **_options(request)})
    await _may_load(gateway, request, load)
    async with uploads.received(request, path, identity_of(request)):
        return accepted(await submit(gateway, CSV, load, identity_of(request)))


@operation(
    "The newest loads of a table",
    "read",
    {200: exactly(table=str, loads=JsonObjects)},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    query=(Parameter("limit", int),),
)
async def list_loads(gateway: Gateway, request: Request) -> Response:
    """The newest loads of a table, for who may read all of its rows."""
    only(request, "limit")
    name = table_of(request)
    whole_table_only(request, name, masked_ok=True)
    limit = whole_number(request, "limit", default=100, most=_MOST_LOADS)
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    loads = await asyncio.to_thread(newest_loads, gateway.lake.registry, table, limit=limit)
    return answer({"table": table.spec.short_name, "loads": loads})


async def _may_load(gateway: Gateway, request: Request, load: LoadRequest) -> None:
    """Who may publish to a table may add rows to it; taking away those of others, and making it, is for admins."""
    if load.mode == "replace":
        admin_only(request)
    if not identity_of(request).is_admin:
        await gateway.directory.table(load.table)


def _options(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {name: request.query_params[name] for name in _TEXTS if name in request.query_params}
    if "header" in request.query_params:
        given["header"] = {"true": True, "false": False}.get(request.query_params["header"], "?")
    if "null_words" in request.query_params:
        given["null_words"] = request.query_params["null_words"].split(",")
    return given
