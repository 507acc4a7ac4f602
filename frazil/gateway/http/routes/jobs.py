"""GET /v1/jobs, /v1/jobs/{id}: what the pipeline was asked to do, and how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from frazil.errors import FrazilError, NotFound
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of
from frazil.gateway.http.operation import FORBIDDEN, JsonObjects, fields, operation
from frazil.gateway.http.query_parameters import only
from frazil.gateway.http.responses import answer
from frazil.gateway.http.server_paths import ServerPaths
from frazil.registry import job_status, list_jobs

_INTERNAL = "something went wrong inside the pipeline"
_TELL_THEM = "tell whoever runs this frazil the id of the job"


class Jobs:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._server_paths = ServerPaths.of(gateway)

    @operation("What the pipeline was asked to do", "jobs", {200: fields(jobs=JsonObjects)}, FORBIDDEN)
    async def list(self, request: Request) -> Response:
        admin_only(request)
        only(request)
        jobs = await asyncio.to_thread(list_jobs, self._gateway.lake.registry)
        await self._see_what_they_did(jobs)
        return answer({"jobs": jobs})

    @operation("One job", "jobs", {200: fields(id=str, kind=str, state=str)}, {404: ("job_not_found",)})
    async def show(self, request: Request) -> Response:
        """For admins, and for the token that asked for it; to others there is no such job."""
        only(request)
        identity = identity_of(request)
        told = await asyncio.to_thread(job_status, self._gateway.lake.registry, request.path_params["id"][:100])
        if not identity.is_admin and told["asked_by"] != identity.id:
            raise NotFound("no job has this id", code="job_not_found", hint="frazil jobs")
        await self._see_what_they_did([told])
        return answer(told if identity.is_admin else self._for_others(told))

    async def _see_what_they_did(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Look at the catalog, so that whoever is told that a job is done finds here what it did."""
        if any(job["state"] == "done" for job in jobs):
            await self._gateway.directory.refresh()

    def _for_others(self, told: dict[str, Any]) -> dict[str, Any]:
        """Without paths of this machine, and without the words of an exception that nobody foresaw."""
        if told.get("error", {}).get("code") == "internal":
            told = {**told, "error": FrazilError(_INTERNAL, hint=_TELL_THEM).body()["error"]}
        hidden: dict[str, Any] = self._server_paths.hidden(told)
        return hidden
