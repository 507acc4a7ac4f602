"""/v1/tables: declare, list, describe, alter, drop, bring back, repair."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.events.declaration import history_of
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, known_only, shown
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    PARAMETER,
    TABLE,
    Errors,
    Fields,
    JsonObject,
    JsonObjects,
    Parameter,
    Texts,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import flag, only, table_of
from frazil.gateway.http.responses import answer
from frazil.gateway.purge import purge_dropped
from frazil.lake.catalog import LakeTable
from frazil.requests import AlterTableRequest, CreateTableRequest, RepairRequest, decode_request
from frazil.tables import (
    alter_table,
    declare_table,
    drop_table,
    dropped_tables,
    repair_bus,
    repair_watermark,
    undrop_table,
)

_BRIEF = Fields(
    {
        "name": str,
        "kind": str,
        "columns": JsonObject,
        "key": Texts,
        "partition": Texts,
        "unknown_fields": str,
        "description": str,
        "owner": str,
        "tags": Texts,
        "text": Texts,
        "search": JsonObject | None,
        "freshness_target_seconds": float | None,
        "retention_years": float | None,
        "keep_snapshots": str,
        "rows": int,
        "snapshot_id": int | None,
        "metadata_location": str,
    },
    {"history": str},
    has_others=False,
)
_BAD_COLUMNS: Errors = {
    422: (
        "bad_check",
        "bad_column",
        "bad_column_name",
        "bad_columns",
        "bad_declaration",
        "bad_search",
        "bad_type",
        "too_many_columns",
        "type_too_deep",
    )
}
_DECLARATION: Errors = {
    409: ("table_exists", "folder_shared"),
    422: (
        "bad_key",
        "bad_partition",
        "bad_policy",
        "reserved_name",
        "reserved_namespace",
        "too_many_partitions",
        "unsupported_kind",
    ),
}
_ALTERATION: Errors = {
    404: ("column_not_found",),
    409: ("column_exists", "cannot_widen", "new_column_required", "is_a_history"),
    422: ("bad_alteration",),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tables", declare, gateway),
        route("GET", "/v1/tables", list_tables, gateway),
        route("GET", "/v1/tables/{table}", describe, gateway),
        route("PATCH", "/v1/tables/{table}", alter, gateway),
        route("DELETE", "/v1/tables/{table}", drop, gateway),
        route("POST", "/v1/tables/{table}/undrop", undrop, gateway),
        route("POST", "/v1/tables/{table}/repair", repair, gateway),
    ]


@operation(
    "Declare a table",
    "tables",
    {201: _BRIEF, 200: _BRIEF},
    _BAD_COLUMNS,
    FORBIDDEN,
    BODY,
    TABLE,
    _DECLARATION,
    body=CreateTableRequest,
)
async def declare(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    declared = decode_request(await json_body(request), CreateTableRequest)
    table, made = await declare_table(
        declared.declaration(), bus=gateway.bus, directory=gateway.directory, journal=gateway.journal
    )
    return answer(_brief(gateway, table), 201 if made else 200)


@operation(
    "List the tables",
    "tables",
    {200: exactly(tables=JsonObjects)},
    FORBIDDEN,
    PARAMETER,
    query=(Parameter("dropped", bool),),
)
async def list_tables(gateway: Gateway, request: Request) -> Response:
    only(request, "dropped")
    identity = identity_of(request)
    if flag(request, "dropped"):
        admin_only(request)
        dropped = await dropped_tables(gateway.lake)
        names = [{"name": name.removeprefix("main."), "times": len(hidden)} for name, hidden in dropped.items()]
        return answer({"tables": names})
    await gateway.directory.refresh()
    known = [table for table in gateway.directory.tables() if identity.knows(table.name)]
    listed = [shown(_brief(gateway, table), table, identity) for table in known]
    for name, error in gateway.directory.broken().items():
        if error.code != "foreign_table" and identity.knows(name):
            body = error.body()
            if not identity.is_admin:
                body["error"].pop("details", None)  # they name files
            listed.append({"name": name.removeprefix("main."), **body})
    return answer({"tables": listed})


@operation("Describe a table", "tables", {200: fields(name=str, schema=JsonObjects)}, TABLE)
async def describe(gateway: Gateway, request: Request) -> Response:
    name = table_of(request)
    known_only(request, name)
    only(request)
    await gateway.directory.refresh()
    table = await gateway.directory.table(name)
    return answer(shown(await gateway.table_status.describe(table), table, identity_of(request)))


@operation(
    "Add columns, widen types, change words",
    "tables",
    {200: _BRIEF},
    _BAD_COLUMNS,
    FORBIDDEN,
    BODY,
    TABLE,
    _ALTERATION,
    body=AlterTableRequest,
)
async def alter(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    name = table_of(request)
    alteration = decode_request(await json_body(request), AlterTableRequest)
    table = await alter_table(name, alteration.changes(), directory=gateway.directory, journal=gateway.journal)
    return answer(_brief(gateway, table))


@operation(
    "Drop a table, or purge what was dropped",
    "tables",
    {200: fields(name=str)},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    query=(Parameter("purge", bool), Parameter("dry_run", bool)),
)
async def drop(gateway: Gateway, request: Request) -> Response:
    """Take a table out of sight; with `purge_dropped` delete for good what was dropped under this name before."""
    admin_only(request)
    only(request, "purge", "dry_run")
    name = table_of(request)
    if flag(request, "purge"):
        return answer(
            await purge_dropped(
                name, bus=gateway.bus, lake=gateway.lake, journal=gateway.journal, dry_run=flag(request, "dry_run")
            )
        )
    if flag(request, "dry_run"):
        raise InvalidInput("only a purge has a dry run", code="bad_parameter", hint="?purge=true&dry_run=true")
    await drop_table(name, directory=gateway.directory, journal=gateway.journal)
    _retire(gateway, name)
    return answer(
        {"name": name.removeprefix("main."), "dropped": True, "hint": "its data is kept; undrop brings it back"}
    )


@operation("Bring a dropped table back", "tables", {200: _BRIEF}, FORBIDDEN, TABLE, {409: ("table_exists",)})
async def undrop(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    table = await undrop_table(table_of(request), directory=gateway.directory, journal=gateway.journal)
    return answer(_brief(gateway, table))


@operation(
    "Repair the bus or the watermark of a table",
    "tables",
    {200: fields(table=str)},
    FORBIDDEN,
    BODY,
    TABLE,
    {409: ("loss_not_accepted", "not_streamed"), 422: ("bad_repair",)},
    body=RepairRequest,
)
async def repair(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    name = table_of(request)
    wanted = decode_request(await json_body(request), RepairRequest)
    bus, lake, journal = gateway.bus, gateway.lake, gateway.journal
    if wanted.what == "bus":
        name = (await gateway.directory.fed(name)).name
        report = await repair_bus(name, bus=bus, lake=lake, journal=journal, accept_loss=wanted.accept_loss)
    else:
        report = await repair_watermark(name, lake=lake, journal=journal)
    _retire(gateway, name)
    await gateway.directory.refresh()
    return answer(report.body())


def _retire(gateway: Gateway, name: str) -> None:
    for known in (name, history_of(name)):
        gateway.writers.retire(known)


def _brief(gateway: Gateway, table: LakeTable) -> dict[str, Any]:
    return {
        **gateway.table_status.declared(table),
        "rows": table.rows,
        "snapshot_id": table.snapshot_id,
        "metadata_location": table.metadata_location,
    }
