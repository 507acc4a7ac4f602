"""Authorization: the caller of a request, and the tables and fields that the caller may see.

A table that the caller has no grant for is answered as one that does not exist: in the same words, and without a look
at the catalog in either case, so that the time does not tell either.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import Scope

from frazil.access import Forbidden, Identity, QuotaPlace
from frazil.errors import NotFound, table_not_found
from frazil.lake.catalog import LakeTable

IDENTITY = "frazil.identity"
PLACE = "frazil.place"
AUDITED = "frazil.audited"
"""Set in the scope by a route that logs its refusals itself."""

# Where files and streams are is for those who run the place.
_PLACES = ("metadata_location", "stream")


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope[IDENTITY]
    return identity


def place_of(request: Request) -> QuotaPlace:
    """What this request holds of the limits on requests, waits and bytes in flight."""
    place: QuotaPlace = request.scope[PLACE]
    return place


def is_admin(scope: Scope) -> bool:
    identity: Identity | None = scope.get(IDENTITY)
    return identity is not None and identity.is_admin


def admin_only(request: Request) -> None:
    identity_of(request).require_admin()


def known_only(request: Request, name: str) -> None:
    """Raise `NotFound` for a table of which the caller may not know."""
    if not identity_of(request).knows(name):
        raise no_such_table(name)


def ingest_only(request: Request, name: str) -> None:
    """Raise unless the caller may write: `Forbidden` to one who may read the table, else `NotFound`."""
    known_only(request, name)
    if not identity_of(request).may_ingest(name):
        short = name.removeprefix("main.")
        raise Forbidden(f"this needs a token with the scope ingest:{short}", hint="ask whoever gave you the token")


def whole_table_only(request: Request, name: str, *, masked_ok: bool = False) -> None:
    """Raise unless the caller may read all rows of the table, and all values too unless `masked_ok`."""
    grant = identity_of(request).read_grant(name)
    if grant is None:
        raise no_such_table(name)
    if grant.filters or not (masked_ok or grant.is_whole):
        of_table = "all rows of the table" if masked_ok else "all of the table"
        raise Forbidden(f"this is for who may read {of_table}", hint="ask whoever gave you the token")


def no_such_table(name: str) -> NotFound:
    return table_not_found(name)


def shown(body: dict[str, Any], table: LakeTable, identity: Identity) -> dict[str, Any]:
    """The fields of a table that this caller may see: numbers of rows are for those who may read all of them."""
    if identity.is_admin:
        return body
    grant = identity.read_grant(table.name)
    if grant is not None and not grant.filters:
        return {word: value for word, value in body.items() if word not in _PLACES}
    words = {*table.spec.declared(), "history", "declaration", "schema"}
    return {word: value for word, value in body.items() if word in words}
