"""GET /v1/tables/{table}/history, …/rows/{id}/history, …/rows?key=, …/changes, and POST …/export-hint"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.access import Forbidden, ReadGrant
from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, no_such_table
from frazil.gateway.http.connected import counted, while_connected
from frazil.gateway.http.operation import (
    FORBIDDEN,
    PARAMETER,
    SQL,
    TABLE,
    JsonObject,
    JsonObjects,
    Parameter,
    Texts,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of, whole_number
from frazil.gateway.http.responses import answer
from frazil.gateway.http.routes.query import queries_of
from frazil.gateway.query.row_history import MAX_CHANGES, History, snapshots_of
from frazil.lake.catalog import export_hint

_MOST_SNAPSHOTS = 10_000


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/tables/{table}/history", snapshots, gateway),
        route("GET", "/v1/tables/{table}/rows/{id:path}/history", row, gateway),
        route("GET", "/v1/tables/{table}/rows", of_key, gateway),
        route("GET", "/v1/tables/{table}/changes", changes, gateway),
        route("POST", "/v1/tables/{table}/export-hint", write_hint, gateway),
    ]


async def _read(request: Request, reading: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """The answer of a reading. A caller that hangs up ends it."""
    return counted(request, answer(await while_connected(request, reading)))


def _history(gateway: Gateway) -> History:
    """Rows are read by the query workers."""
    return History(gateway.directory, queries_of(gateway))


@operation(
    "The snapshots of a table, newest first",
    "read",
    {200: fields(table=str, snapshots=JsonObjects)},
    TABLE,
    PARAMETER,
    query=(Parameter("limit", int),),
)
async def snapshots(gateway: Gateway, request: Request) -> Response:
    only(request, "limit")
    name, grant = _readable(request)
    limit = whole_number(request, "limit", default=100, most=_MOST_SNAPSHOTS)
    return answer(await snapshots_of(gateway.directory, name, grant=grant, limit=limit))


@operation(
    "Every version of the row of an event id",
    "read",
    {200: fields(table=str, id=str)},
    FORBIDDEN,
    TABLE,
    SQL,
    {404: ("row_not_found",)},
)
async def row(gateway: Gateway, request: Request) -> Response:
    only(request)
    name = _with_positions(request)
    return await _read(request, _history(gateway).row(name, request.path_params["id"], identity_of(request)))


@operation(
    "Every event of one key of an entity",
    "read",
    {200: fields(table=str, key=dict[str, str])},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    SQL,
    {404: ("row_not_found",), 422: ("no_key", "bad_key")},
    query=(Parameter("key", Texts),),
)
async def of_key(gateway: Gateway, request: Request) -> Response:
    """`?key=column=value`, once for each column of the key."""
    only(request, "key")
    name = _with_positions(request)
    parts = [text.partition("=") for text in request.query_params.getlist("key")]
    if any(not equals for _, equals, _ in parts) or len({column for column, *_ in parts}) != len(parts):
        raise InvalidInput("`key` is column=value, each column once", code="bad_parameter", hint="?key=id=7")
    key = {column: value for column, _, value in parts}
    return await _read(request, _history(gateway).of_key(name, key, identity_of(request)))


@operation(
    "The rows that came and went between two snapshots",
    "read",
    {200: fields(table=str)},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    SQL,
    query=(Parameter("from", int, required=True), Parameter("to", int), Parameter("limit", int)),
)
async def changes(gateway: Gateway, request: Request) -> Response:
    only(request, "from", "to", "limit")
    name = _with_positions(request)
    first = _snapshot_id(request, "from")
    if first is None:
        raise InvalidInput(
            "`from` is the id of a snapshot", code="bad_parameter", hint="GET /v1/tables/{table}/history has them"
        )
    limit = whole_number(request, "limit", default=1_000, most=MAX_CHANGES)
    second = _snapshot_id(request, "to")
    reading = _history(gateway).changes(name, first, second, identity_of(request), limit=limit)
    return await _read(request, reading)


@operation("Let the folder of a table name its newest state", "tables", {200: JsonObject}, FORBIDDEN, TABLE)
async def write_hint(gateway: Gateway, request: Request) -> Response:
    only(request)
    admin_only(request)
    await gateway.directory.refresh()
    table = await gateway.directory.table(table_of(request))
    hint = await asyncio.to_thread(export_hint, table)
    gateway.journal.append("hint_exported", table=table.name, metadata=table.metadata_location)
    return answer(asdict(hint))


def _readable(request: Request) -> tuple[str, ReadGrant]:
    """The table's full name and what the caller sees of it; if that is nothing, refused as one that does not exist."""
    name = table_of(request)
    grant = identity_of(request).read_grant(name)
    if grant is None:
        raise no_such_table(name)
    return name, grant


def _with_positions(request: Request) -> str:
    """The table's full name, for a caller who sees the positions of rows."""
    name, grant = _readable(request)
    if "_seq" in grant.masks:  # of a token that was made when this was allowed
        raise Forbidden("this token sees `_seq` masked", hint="ask whoever gave you the token for one without that")
    return name


def _snapshot_id(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii() and len(text) < 20):
        raise InvalidInput(f"`{name}` is the id of a snapshot", code="bad_parameter")
    return int(text)
