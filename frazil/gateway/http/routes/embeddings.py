"""POST /v1/tables/{table}/embed, /v1/tables/{table}/embeddings: the vectors of a table, model by model."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, identity_of, whole_table_only
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.operation import (
    FORBIDDEN,
    TABLE,
    JsonObjects,
    exactly,
    job_operation,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of
from frazil.gateway.http.responses import accepted, answer
from frazil.gateway.jobs import submit
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import delete_embeddings, embedding_models
from frazil.pipeline.embeddings import check_model, model_of
from frazil.registry import open_jobs
from frazil.requests import EMBED, EmbedRequest


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tables/{table}/embed", embed, gateway),
        route("GET", "/v1/tables/{table}/embeddings", list_models, gateway),
        route("DELETE", "/v1/tables/{table}/embeddings/{model}", delete, gateway),
    ]


@job_operation(
    "Embed what is new in a table",
    EMBED,
    {422: ("bad_embedding",), 409: ("own_vectors",)},
    table_in_path=True,
)
async def embed(gateway: Gateway, request: Request) -> Response:
    """Have the pipeline embed what is new; the result is at /v1/jobs/{id}."""
    admin_only(request)
    only(request)
    name = table_of(request)
    body = await json_body(request)
    if not isinstance(body, dict) or "table" in body:
        raise InvalidInput("an embedding is {model?, shadow?, retry?, sweep?}", code="bad_embedding", hint="{}")
    wanted = EmbedRequest.parse({**body, "table": name})
    check_model((await _table(gateway, name)).spec, wanted)
    return accepted(await submit(gateway, EMBED, wanted, identity_of(request)))


@operation(
    "The models that a table has vectors of",
    "search",
    {200: exactly(table=str, model=str | None, models=JsonObjects)},
    FORBIDDEN,
    TABLE,
    {422: ("bad_embedding",)},
)
async def list_models(gateway: Gateway, request: Request) -> Response:
    """The models that the table has vectors of, for who may read all of it."""
    only(request)
    name = table_of(request)
    whole_table_only(request, name)
    table = await _table(gateway, name)
    found = await asyncio.to_thread(embedding_models, gateway.lake, table)
    of_table = model_of(table.spec) if table.spec.searched is not None else None
    return answer(
        {
            "table": table.spec.short_name,
            "model": of_table,
            "models": [{**model, "is_of_table": model["model"] == of_table} for model in found],
        }
    )


@operation(
    "Delete the vectors of a model",
    "search",
    {200: exactly(table=str, model=str, deleted=int)},
    FORBIDDEN,
    TABLE,
    {404: ("model_not_found",), 409: ("model_in_use", "embedding_runs"), 422: ("bad_embedding",)},
)
async def delete(gateway: Gateway, request: Request) -> Response:
    """Delete the vectors of a model that the table is not searched with."""
    admin_only(request)
    only(request)
    name, model = table_of(request), request.path_params["model"]
    table = await _table(gateway, name)
    return answer(await asyncio.to_thread(_deleted, gateway, table, model))


def _deleted(gateway: Gateway, table: LakeTable, model: str) -> dict[str, object]:
    lake, short = gateway.lake, table.spec.short_name
    if model == model_of(table.spec):
        raise Conflict(
            f"{short!r} is searched with {model!r}",
            code="model_in_use",
            hint=f"make another one its model first: frazil embed {short} --model <name>",
        )
    if any(job.params.get("table") == table.name for job in open_jobs(lake.registry, [EMBED.name])):
        raise Conflict(f"{short!r} is being embedded", code="embedding_runs", hint="wait for it: frazil jobs")
    if all(found["model"] != model for found in embedding_models(lake, table)):
        raise NotFound(
            f"{short!r} has no vectors of {model[:80]!r}",
            code="model_not_found",
            hint=f"frazil embed {short} --list",
        )
    gone = delete_embeddings(lake, table.name, model)
    gateway.journal.append("embeddings_deleted", table=table.name, model=model, vectors=gone)
    return {"table": short, "model": model, "deleted": gone}


async def _table(gateway: Gateway, name: str) -> LakeTable:
    await gateway.directory.refresh()
    return await gateway.directory.table(name)
