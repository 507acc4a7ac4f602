"""GET /v1/jobs, /v1/jobs/{id}: the jobs of the pipeline and their states."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import FrazilError, NotFound
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of
from frazil.gateway.http.operation import (
    FORBIDDEN,
    JsonObjects,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only
from frazil.gateway.http.responses import answer
from frazil.gateway.http.server_paths import ServerPaths
from frazil.registry import job_status, list_jobs

_INTERNAL = "something went wrong inside the pipeline"
_REPORT_IT = "report the id of the job to the administrator of this frazil"


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/jobs", show_all, gateway),
        route("GET", "/v1/jobs/{id}", show, gateway),
    ]


@operation("The jobs of the pipeline", "jobs", {200: exactly(jobs=JsonObjects)}, FORBIDDEN)
async def show_all(gateway: Gateway, request: Request) -> Response:
    admin_only(request)
    only(request)
    jobs = await asyncio.to_thread(list_jobs, gateway.lake.registry)
    await _refresh_after(gateway, jobs)
    return answer({"jobs": jobs})


@operation("One job", "jobs", {200: fields(id=str, kind=str, state=str)}, {404: ("job_not_found",)})
async def show(gateway: Gateway, request: Request) -> Response:
    """For admins, and for the token that submitted it; for others there is no such job."""
    only(request)
    identity = identity_of(request)
    job = await asyncio.to_thread(job_status, gateway.lake.registry, request.path_params["id"][:100])
    if not identity.is_admin and job["asked_by"] != identity.id:
        raise NotFound("no job has this id", code="job_not_found", hint="frazil jobs")
    await _refresh_after(gateway, [job])
    return answer(job if identity.is_admin else _for_others(gateway, job))


async def _refresh_after(gateway: Gateway, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Read the catalog again, so that a caller who sees that a job is done finds its result here."""
    if any(job["state"] == "done" for job in jobs):
        await gateway.directory.refresh()


def _for_others(gateway: Gateway, job: dict[str, Any]) -> dict[str, Any]:
    """Without paths of this machine, and without the words of an exception that nobody foresaw."""
    if job.get("error", {}).get("code") == "internal":
        job = {**job, "error": FrazilError(_INTERNAL, hint=_REPORT_IT).body()["error"]}
    hidden: dict[str, Any] = ServerPaths.of(gateway).hidden(job)
    return hidden
