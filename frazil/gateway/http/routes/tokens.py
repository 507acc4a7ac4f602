"""/v1/tokens: create, list, show, rotate, revoke. All of it is for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from frazil.access import AccessControl, AuditEntry, Grant, TokenRecord, matching, parse_grants
from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of
from frazil.gateway.http.bodies import BodyReader, json_body
from frazil.gateway.http.middleware import client_of
from frazil.gateway.http.query_parameters import only
from frazil.gateway.http.responses import answer
from frazil.lake.catalog import LakeTable

CheckFilter = Callable[[LakeTable, str], Awaitable[None]]
"""Raises `InvalidInput` unless the text is one SQL condition over the columns of the table, and nothing more."""

_FIELDS = ("name", "grants", "expires_in_s", "expires_at", "rate_per_second", "burst")
_MAX_NAME = 200
_MAX_LIFE = timedelta(days=3653)
_MAX_GRACE_SECONDS = 30 * 86_400.0
_MAX_RATE = 1_000_000
_SECRET_HEADERS = {"Cache-Control": "no-store"}


class Tokens:
    def __init__(self, gateway: Gateway, access: AccessControl, bodies: BodyReader, check_filter: CheckFilter) -> None:
        self._gateway = gateway
        self._access = access
        self._bodies = bodies
        self._check_filter = check_filter

    async def create(self, request: Request) -> Response:
        """201 with the secret, which is told here and never again."""
        admin_only(request)
        only(request)
        declared = _object(await json_body(request, self._bodies), _FIELDS)
        grants = parse_grants(declared.get("grants"))
        _no_guesses(grants)
        for grant in grants:
            if grant.restricts:
                await self._judge(grant)
        record, secret = await asyncio.to_thread(
            self._access.tokens.create,
            _name(declared.get("name")),
            grants,
            created_by=identity_of(request).id,
            expires_at=_expiry(declared, datetime.now(UTC)),
            rate_per_second=_number(declared, "rate_per_second", least=0.001, most=_MAX_RATE),
            burst=_whole(declared, "burst", most=_MAX_RATE),
        )
        await self._changed(request, "token.create", record)
        return answer({"token": secret, **record.body(datetime.now(UTC))}, 201, _SECRET_HEADERS)

    async def list(self, request: Request) -> Response:
        admin_only(request)
        only(request)
        records = await asyncio.to_thread(self._access.tokens.list)
        now = datetime.now(UTC)
        return answer({"tokens": [record.body(now) for record in records]})

    async def show(self, request: Request) -> Response:
        admin_only(request)
        only(request)
        record = await asyncio.to_thread(self._access.tokens.get, request.path_params["id"])
        return answer(record.body(datetime.now(UTC)))

    async def revoke(self, request: Request) -> Response:
        admin_only(request)
        only(request)
        record = await asyncio.to_thread(self._access.tokens.revoke, request.path_params["id"])
        await self._changed(request, "token.revoke", record)
        return answer(record.body(datetime.now(UTC)))

    async def rotate(self, request: Request) -> Response:
        """200 with a new secret for the same id. The old one works `grace_s` longer; without it, it ends now."""
        admin_only(request)
        only(request)
        wanted = _object(await json_body(request, self._bodies), ("grace_s",)) if _has_body(request) else {}
        grace_seconds = _number(wanted, "grace_s", least=0, most=_MAX_GRACE_SECONDS) or 0.0
        record, secret = await asyncio.to_thread(
            self._access.tokens.rotate, request.path_params["id"], grace_seconds=grace_seconds
        )
        await self._changed(request, "token.rotate", record)
        return answer({"token": secret, **record.body(datetime.now(UTC))}, 200, _SECRET_HEADERS)

    async def _changed(self, request: Request, action: str, record: TokenRecord) -> None:
        """Let the change hold here at once, and write it down."""
        await self._access.see_changes()
        admin = identity_of(request)
        entry = AuditEntry(
            action=action,
            token_id=admin.id,
            token_name=admin.name,
            client=client_of(request.scope),
            tables=tuple(sorted({grant.tables for grant in record.grants if grant.tables})),
            subject=record.id,
        )
        await asyncio.to_thread(self._access.audit.append, entry, durable=True)

    async def _judge(self, grant: Grant) -> None:
        """Refuse a filter or a mask that would fail, or mean something else, when a query comes."""
        table = await self._gateway.directory.table(grant.tables)
        columns = {field.name: field.type for field in self._gateway.directory.spec_of(table).row_schema()}
        for column, mask in grant.masks.items():
            if column not in columns:
                raise _bad(
                    f"{table.spec.short_name!r} has no column {column[:80]!r} to mask",
                    hint="its columns are " + ", ".join(columns),
                )
            if column == "_seq":
                raise _bad("`_seq` is the position by which rows are told apart and cannot be masked")
            if mask != "null" and not pa.types.is_string(columns[column]):
                raise _bad(f"{column!r} is no text and cannot be masked by {mask[:80]}", hint="mask it by null")
        if grant.where is not None:
            await self._check_filter(table, grant.where)


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


def _object(declared: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(declared, dict):
        raise _bad("the body is an object with " + ", ".join(fields), code="bad_token_request")
    for name in declared:
        if name not in fields:
            raise _bad(
                f"there is no field {str(name)[:80]!r} here",
                code="unknown_field",
                hint="the fields are " + ", ".join(fields),
            )
    return declared


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise _bad(
            f"`name` is a text of at most {_MAX_NAME} characters",
            code="bad_token_request",
            hint="say who uses the token and what for",
        )
    return name.strip()


def _expiry(declared: dict[str, Any], now: datetime) -> datetime | None:
    at, seconds = declared.get("expires_at"), _number(declared, "expires_in_s", least=1, most=_MAX_LIFE.total_seconds())
    if at is not None and seconds is not None:
        raise _bad("`expires_at` and `expires_in_s` say the same thing", code="bad_expiry", hint="give one of them")
    if seconds is not None:
        return now + timedelta(seconds=seconds)
    if at is None:
        return None
    try:
        moment = datetime.fromisoformat(at).astimezone(UTC) if datetime.fromisoformat(at).tzinfo else None
    except (ValueError, TypeError, OverflowError):
        moment = None
    if moment is None or not now < moment <= now + _MAX_LIFE:
        raise _bad(
            "`expires_at` is a time with its zone, in the future and within ten years",
            code="bad_expiry",
            hint="for example 2030-01-31T12:00:00Z",
        )
    return moment


def _number(declared: dict[str, Any], name: str, *, least: float, most: float) -> float | None:
    value = declared.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise _bad(f"`{name}` is a number from {least:g} to {most:,.0f}", code="bad_token_request")
    return float(value)


def _whole(declared: dict[str, Any], name: str, *, most: int) -> int | None:
    value = declared.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
        raise _bad(f"`{name}` is a whole number from 1 to {most:,}", code="bad_token_request")
    return value


def _bad(message: str, *, code: str = "bad_grant", hint: str = "") -> InvalidInput:
    return InvalidInput(message, code=code, hint=hint)
