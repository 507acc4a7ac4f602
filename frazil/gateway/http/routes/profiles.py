"""/v1/profiles: named ways to search a table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.embedding import OWN, find_model_spec
from frazil.errors import Conflict, FrazilError, InvalidInput, Misconfigured, NotFound
from frazil.events.declaration import SearchSpec, table_name
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, no_such_table
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    BODY,
    FILTER,
    FORBIDDEN,
    TABLE,
    Errors,
    JsonObjects,
    Parameter,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only
from frazil.gateway.http.responses import answer
from frazil.gateway.http.routes.artifacts import served_of
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import embedding_models
from frazil.requests import ProfileRequest
from frazil.serving import Profile, Profiles, no_such_profile, parse_profile
from frazil.serving.artifacts import announce, open_shelf

_PROFILE = fields(name=str, table=str, model=str | None, mode=str | None, k=int | None)
_CHECKED: Errors = {
    409: ("model_not_embedded",),
    422: ("bad_profile", "bad_index_config", "bad_model", "unknown_model"),
    503: ("no_search",),
}


@dataclass(frozen=True)
class _Target:
    """The table of a profile, as it is now."""

    table: LakeTable
    search: SearchSpec
    columns: list[str]
    has_text: bool

    @property
    def model(self) -> str:
        return OWN if self.search.vector is not None else self.search.model


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/profiles", list_profiles, gateway),
        route("GET", "/v1/profiles/{name}", show, gateway),
        route("PUT", "/v1/profiles/{name}", put, gateway),
        route("DELETE", "/v1/profiles/{name}", delete, gateway),
    ]


@operation(
    "The profiles of the tables that the token may read",
    "search",
    {200: exactly(profiles=JsonObjects)},
    TABLE,
    query=(Parameter("table"),),
)
async def list_profiles(gateway: Gateway, request: Request) -> Response:
    """Those of tables that the caller may read; `?table=` for those of one."""
    only(request, "table")
    name = request.query_params.get("table")
    of_table = table_name(name) if name else None
    found = await asyncio.to_thread(Profiles(gateway.lake.registry).list, of_table)
    shown = [profile for profile in found if identity_of(request).read_grant(profile.table) is not None]
    return answer({"profiles": [profile.body() for profile in shown]})


@operation("One profile", "search", {200: _PROFILE}, {404: ("profile_not_found",)})
async def show(gateway: Gateway, request: Request) -> Response:
    only(request)
    profile = await asyncio.to_thread(Profiles(gateway.lake.registry).get, request.path_params["name"])
    if identity_of(request).read_grant(profile.table) is None:
        raise no_such_profile(profile.name)
    return answer(profile.body())


@operation(
    "Make a profile, or change it",
    "search",
    {200: _PROFILE, 201: _PROFILE},
    FILTER,
    FORBIDDEN,
    BODY,
    TABLE,
    _CHECKED,
    body=ProfileRequest,
)
async def put(gateway: Gateway, request: Request) -> Response:
    """Make it, or make it another: 201 or 200."""
    admin_only(request)
    only(request)
    name = request.path_params["name"]
    profile = parse_profile(name, await json_body(request))
    await _check(gateway, profile)
    before = await asyncio.to_thread(_known, gateway, name)
    await asyncio.to_thread(Profiles(gateway.lake.registry).put, profile)
    gateway.journal.append("profile_set", table=profile.table, profile=name, by=identity_of(request).id)
    if before is not None and before.shelf != profile.shelf:
        await _clear(gateway, before)
    return answer(profile.body(), 200 if before else 201)


@operation(
    "Delete a profile and its artifacts",
    "search",
    {200: exactly(name=str, deleted=bool)},
    FORBIDDEN,
    {404: ("profile_not_found",), 503: ("no_search",)},
)
async def delete(gateway: Gateway, request: Request) -> Response:
    """Delete it, and the artifacts that only it had. After a kill, do it again."""
    admin_only(request)
    only(request)
    name = request.path_params["name"]
    profile = await asyncio.to_thread(Profiles(gateway.lake.registry).get, name)
    await _clear(gateway, profile)
    await asyncio.to_thread(Profiles(gateway.lake.registry).delete, name)
    # Once more, for a build that came in between.
    await _clear(gateway, profile)
    gateway.journal.append("profile_deleted", table=profile.table, profile=name, by=identity_of(request).id)
    return answer({"name": name, "deleted": True})


def _known(gateway: Gateway, name: str) -> Profile | None:
    try:
        return Profiles(gateway.lake.registry).get(name)
    except NotFound:
        return None


async def _clear(gateway: Gateway, profile: Profile) -> None:
    """Take away the shelf that only this profile had."""
    if profile.shelf == profile.table:
        return
    lake, settings = gateway.lake, served_of(gateway).settings
    await asyncio.to_thread(open_shelf(lake.registry, lake.warehouse, profile.shelf, settings).clear)
    if profile.model is not None:
        from frazil.serving import forget_index

        await asyncio.to_thread(forget_index, lake.registry, profile.shelf, profile.model)
    try:
        await announce(gateway.bus, profile.shelf, "")
    except FrazilError as error:
        gateway.journal.append("announcement_failed", table=profile.table, reason=error.message)


async def _check(gateway: Gateway, profile: Profile) -> None:
    """Refuse what no search by this profile could do."""
    target = await _target(gateway, profile.table)
    for column in profile.columns or ():
        if column not in target.columns:
            raise _bad(f"{profile.table} has no column {column[:80]!r}", f"it has {', '.join(target.columns)}")
    if profile.mode in ("text", "hybrid") and not target.has_text:
        raise _bad(f"{profile.table} has no text columns", 'its mode is "vector"')
    if profile.model is not None and profile.model != target.model:
        await _check_model(gateway, profile.model, target)
    if profile.filter is not None:
        await gateway.check_filter(target.table, profile.filter)


async def _check_model(gateway: Gateway, model: str, target: _Target) -> None:
    """Another model than the table's must be one that its text has vectors of."""
    if model == OWN or not target.has_text:
        raise _bad(f"{target.table.spec.short_name!r} cannot be searched with {model!r}", f"with {target.model!r}")
    try:
        find_model_spec(model, served_of(gateway).models)
    except Misconfigured as error:
        raise InvalidInput(error.message, code=error.code, hint=error.hint) from error
    known = await asyncio.to_thread(embedding_models, gateway.lake, target.table)
    if all(found["model"] != model for found in known):
        short = target.table.spec.short_name
        raise Conflict(
            f"{short!r} has no vectors of {model!r}",
            code="model_not_embedded",
            hint=f"frazil embed {short} --model {model} --shadow",
        )


async def _target(gateway: Gateway, name: str) -> _Target:
    directory = gateway.directory
    await directory.refresh()
    try:
        table = await directory.table(name)
    except NotFound:
        raise no_such_table(name) from None
    spec = directory.spec_of(table)
    if spec.searched is None or not spec.is_streamed:
        raise _bad(f"{spec.short_name!r} is not searched", 'declare it with `text`, as in "text": ["body"]')
    return _Target(table, spec.searched, spec.row_schema().names, bool(spec.text))


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_profile", hint=hint)
