"""/v1/tokens: create, list, show, rotate, revoke. All of it is for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.access import AuditEntry, Grant, TokenRecord, matching, parse_grants
from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.middleware import client_of
from frazil.gateway.http.operation import (
    BODY,
    FILTER,
    FORBIDDEN,
    TABLE,
    Errors,
    JsonObject,
    exactly,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only
from frazil.gateway.http.responses import answer
from frazil.lake.catalog import LakeTable
from frazil.requests import RotationRequest, TokenRequest, decode_request

CheckFilter = Callable[[LakeTable, str], Awaitable[None]]
"""Raises `InvalidInput` unless the text is one SQL condition over the columns of the table, and nothing more."""

_SECRET_HEADERS = {"Cache-Control": "no-store"}
_TOKEN = exactly(
    id=str,
    name=str,
    prefix=str,
    state=str,
    grants=list[str | JsonObject],
    created_at=str | None,
    created_by=str | None,
    expires_at=str | None,
    rotated_at=str | None,
    old_secret_until=str | None,
    revoked_at=str | None,
    last_used_at=str | None,
    rate_per_second=float | None,
    burst=int | None,
)
_TOKEN_AND_SECRET = exactly(token=str, **_TOKEN.required)
_NO_TOKEN: Errors = {404: ("token_not_found",), 503: ("busy", "audit_unavailable")}
_BAD_REQUEST: Errors = {
    422: ("bad_grant", "bad_token_request", "bad_expiry"),
    503: ("busy", "audit_unavailable"),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tokens", create, gateway),
        route("GET", "/v1/tokens", list_tokens, gateway),
        route("GET", "/v1/tokens/{id}", show, gateway),
        route("DELETE", "/v1/tokens/{id}", revoke, gateway),
        route("POST", "/v1/tokens/{id}/rotate", rotate, gateway),
    ]


@operation(
    "Create a token",
    "tokens",
    {201: _TOKEN_AND_SECRET},
    FILTER,
    FORBIDDEN,
    BODY,
    TABLE,
    _BAD_REQUEST,
    body=TokenRequest,
)
async def create(gateway: Gateway, request: Request) -> Response:
    """201 with the secret, which is shown here and never again."""
    admin_only(request)
    only(request)
    wanted = decode_request(await json_body(request), TokenRequest)
    expires_at = wanted.expiry(datetime.now(UTC))
    grants = parse_grants(wanted.grants)
    _no_guesses(grants)
    for grant in grants:
        if grant.restricts:
            await _judge(gateway, grant)
    record, secret = await asyncio.to_thread(
        gateway.access.tokens.create,
        wanted.name.strip(),
        grants,
        created_by=identity_of(request).id,
        expires_at=expires_at,
        rate_per_second=wanted.rate_per_second,
        burst=wanted.burst,
    )
    await _changed(gateway, request, "token.create", record)
    return answer({"token": secret, **record.body(datetime.now(UTC))}, 201, _SECRET_HEADERS)


@operation("All tokens", "tokens", {200: exactly(tokens=[_TOKEN])}, FORBIDDEN)
async def list_tokens(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    records = await asyncio.to_thread(gateway.access.tokens.list)
    now = datetime.now(UTC)
    return answer({"tokens": [record.body(now) for record in records]})


@operation("One token", "tokens", {200: _TOKEN}, FORBIDDEN, _NO_TOKEN)
async def show(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    record = await asyncio.to_thread(gateway.access.tokens.get, request.path_params["id"])
    return answer(record.body(datetime.now(UTC)))


@operation("End a token for good", "tokens", {200: _TOKEN}, FORBIDDEN, _NO_TOKEN)
async def revoke(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    record = await asyncio.to_thread(gateway.access.tokens.revoke, request.path_params["id"])
    await _changed(gateway, request, "token.revoke", record)
    return answer(record.body(datetime.now(UTC)))


@operation(
    "A new secret for the same token",
    "tokens",
    {200: _TOKEN_AND_SECRET},
    FORBIDDEN,
    BODY,
    _NO_TOKEN,
    {422: ("bad_token_request",)},
    body=RotationRequest,
    body_required=False,
)
async def rotate(gateway: Gateway, request: Request) -> Response:
    """200 with a new secret for the same id. The old one works `grace_s` longer; without it, it ends now."""
    admin_only(request)
    only(request)
    body = await json_body(request) if _has_body(request) else {}
    wanted = decode_request(body, RotationRequest)
    record, secret = await asyncio.to_thread(
        gateway.access.tokens.rotate, request.path_params["id"], grace_seconds=wanted.grace_s
    )
    await _changed(gateway, request, "token.rotate", record)
    return answer({"token": secret, **record.body(datetime.now(UTC))}, 200, _SECRET_HEADERS)


async def _changed(gateway: Gateway, request: Request, action: str, record: TokenRecord) -> None:
    """Let the change hold here at once, and write it down."""
    await gateway.access.see_changes()
    admin = identity_of(request)
    entry = AuditEntry(
        action=action,
        token_id=admin.id,
        token_name=admin.name,
        client=client_of(request.scope),
        tables=tuple(sorted({grant.tables for grant in record.grants if grant.tables})),
        subject=record.id,
    )
    await asyncio.to_thread(gateway.access.audit.append, entry, durable=True)


async def _judge(gateway: Gateway, grant: Grant) -> None:
    """Refuse a filter or a mask that would fail, or mean something else, when a query comes."""
    table = await gateway.directory.table(grant.tables)
    columns = {field.name: field.type for field in gateway.directory.spec_of(table).row_schema()}
    for column, mask in grant.masks.items():
        if column not in columns:
            raise _bad(
                f"{table.spec.short_name!r} has no column {column[:80]!r} to mask",
                hint="its columns are " + ", ".join(columns),
            )
        if column == "_seq":
            raise _bad("`_seq` is the position of each row and cannot be masked")
        if mask != "null" and not pa.types.is_string(columns[column]):
            raise _bad(f"{column!r} is no text and cannot be masked by {mask[:80]}", hint="mask it by null")
    if grant.where is not None:
        await gateway.check_filter(table, grant.where)


def _no_guesses(grants: Sequence[Grant]) -> None:
    """Refuse a token that reads hashes of a table and may publish there: it would publish its guesses and compare."""
    if any(grant.verb == "admin" for grant in grants):
        return  # it sees everything as it is
    for grant in grants:
        hashed = [column for column, mask in grant.masks.items() if mask.startswith("hash")]
        if hashed and matching(grants, "ingest", grant.tables):
            short = grant.tables.removeprefix("main.")
            raise _bad(
                f"a token that may publish to {short!r} could find out by guesses what the hashes of "
                f"{hashed[0][:80]!r} stand for",
                hint="mask it by null or redact, or hand out one token to publish and another to read",
            )


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _bad(message: str, *, hint: str = "") -> InvalidInput:
    return InvalidInput(message, code="bad_grant", hint=hint)
