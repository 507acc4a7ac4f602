"""POST /v1/query"""

from __future__ import annotations

import json

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import Unavailable
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import AUDITED, identity_of, place_of
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.connected import counted, while_connected
from frazil.gateway.http.middleware import client_of
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    SQL,
    TABLE,
    Errors,
    JsonObject,
    JsonObjects,
    Rows,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only
from frazil.gateway.query.queries import Queries, QueryAnswer
from frazil.requests import Format, QueryRequest, decode_request

_MEDIA: dict[Format, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
_ERRORS: Errors = {
    413: ("sql_too_large",),
    422: ("bad_query", "bad_parameters", "bad_token", "bad_time", "bad_snapshot_id"),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/query", run, gateway),
    ]


@operation(
    "Answer one SELECT",
    "read",
    {
        200: fields(
            columns=JsonObjects,
            rows=Rows,
            row_count=int,
            truncated=bool,
            token=str,
            freshness=str,
            snapshots=JsonObject,
            elapsed_ms=float,
            queued_ms=float,
        )
    },
    SQL,
    FORBIDDEN,
    BODY,
    TABLE,
    _ERRORS,
    body=QueryRequest,
    gives=tuple(media.partition(";")[0] for media in _MEDIA.values()),
)
async def run(gateway: Gateway, request: Request) -> Response:
    """The rows, and what they were read from. A caller that hangs up stops its query."""
    only(request)
    identity = identity_of(request)
    identity.require_sql()
    queries = queries_of(gateway)
    request.scope[AUDITED] = True
    ask = decode_request(await json_body(request), QueryRequest)
    if ask.format is None:
        ask = msgspec.structs.replace(ask, format=_accepted(request))
    place = place_of(request)
    answering = queries.answer(ask, identity, client=client_of(request.scope), waiting=place.waiting)
    return counted(request, _response(ask.format or "json", await while_connected(request, answering)))


def queries_of(gateway: Gateway) -> Queries:
    if gateway.queries is None:
        raise Unavailable(
            "this gateway takes in events and answers no queries",
            code="no_query_workers",
            hint="ask another gateway, or set query.workers",
            retry_after_seconds=60.0,
        )
    return gateway.queries


def _accepted(request: Request) -> Format:
    """The format that the Accept header names; JSON where it leaves the choice to us."""
    wanted = request.headers.get("accept", "")
    for format_, media in _MEDIA.items():
        if media.partition(";")[0] in wanted:
            return format_
    return "json"


def _response(format_: Format, answer: QueryAnswer) -> Response:
    media = _MEDIA[format_]
    if format_ == "json":
        content = {"columns": answer.columns, "rows": msgspec.Raw(answer.body), **answer.about}
        return Response(msgspec.json.encode(content), media_type=media)
    about = json.dumps(answer.about, ensure_ascii=True, separators=(",", ":"))
    return Response(answer.body, media_type=media, headers={"Frazil-Answer": about})
