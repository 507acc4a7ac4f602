"""/v1/tables/{table}/artifacts: list, show, verify, promote, roll back; `?profile=` for the shelf of a profile."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from frazil.access import Forbidden
from frazil.errors import InvalidInput, Unavailable
from frazil.gateway.artifacts import Artifacts
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, no_such_table
from frazil.gateway.http.operation import FORBIDDEN, PARAMETER, TABLE, Errors, JsonObject, Parameter, operation
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


class TableArtifacts:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @operation(
        "The artifacts of a table",
        "search",
        {200: JsonObject},
        FORBIDDEN,
        TABLE,
        _ERRORS,
        query=(Parameter("profile"),),
    )
    async def list(self, request: Request) -> Response:
        only(request, "profile")
        self._readers_only(request)
        _, _, shelf = await self._shelf(request)
        return answer(await asyncio.to_thread(self._artifacts.listed, shelf))

    @operation("One artifact", "search", {200: JsonObject}, FORBIDDEN, TABLE, _ERRORS, query=(Parameter("profile"),))
    async def show(self, request: Request) -> Response:
        only(request, "profile")
        self._readers_only(request)
        _, _, shelf = await self._shelf(request)
        return answer(await asyncio.to_thread(self._artifacts.show, shelf, request.path_params["generation"]))

    @operation(
        "Verify the files of an artifact",
        "search",
        {200: JsonObject},
        FORBIDDEN,
        TABLE,
        _ERRORS,
        query=(Parameter("profile"),),
    )
    async def verify(self, request: Request) -> Response:
        admin_only(request)
        only(request, "profile")
        table, profile, shelf = await self._shelf(request)
        generation = request.path_params["generation"]
        return answer(await asyncio.to_thread(self._artifacts.verify, shelf, generation, table, profile))

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
    async def promote(self, request: Request) -> Response:
        """`?back=true` for one that is older than the current one, or was rolled back."""
        admin_only(request)
        only(request, "profile", "back", "wait_s")
        _, _, shelf = await self._shelf(request)
        return answer(
            await self._artifacts.promote(
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
    async def rollback(self, request: Request) -> Response:
        admin_only(request)
        only(request, "profile", "reason", "wait_s")
        reason = request.query_params.get("reason", "").strip()
        if len(reason) > _MAX_REASON:
            raise InvalidInput(f"a reason has at most {_MAX_REASON:,} characters", code="bad_parameter")
        _, _, shelf = await self._shelf(request)
        return answer(
            await self._artifacts.rollback(
                shelf,
                reason=reason or f"rolled back by {identity_of(request).id}",
                wait_seconds=seconds(request, "wait_s", default=0.0, most=_LONGEST_WAIT_SECONDS),
                by=identity_of(request).id,
            )
        )

    @property
    def _artifacts(self) -> Artifacts:
        gateway = self._gateway
        return Artifacts(lake=gateway.lake, bus=gateway.bus, journal=gateway.journal, served=served_of(gateway))

    async def _shelf(self, request: Request) -> tuple[LakeTable, Profile | None, Shelf]:
        name = table_of(request)
        await self._gateway.directory.refresh()
        table = await self._gateway.directory.table(name)
        artifacts = self._artifacts
        profile = await asyncio.to_thread(artifacts.profile, name, request.query_params.get("profile"))
        return table, profile, artifacts.shelf(name, profile)

    def _readers_only(self, request: Request) -> None:
        """For who may read all of the table: an artifact tells how many rows there are."""
        name = table_of(request)
        grant = identity_of(request).read_grant(name)
        if grant is None:
            raise no_such_table(name)
        if not grant.is_whole:
            raise Forbidden("this is for who may read all of the table", hint="ask whoever gave you the token")


def served_of(gateway: Gateway) -> ShelfReaders:
    if gateway.served is None:
        raise Unavailable(
            "this gateway serves no searches",
            code="no_search",
            hint="ask a gateway that does",
            retry_after_seconds=60.0,
        )
    return gateway.served
