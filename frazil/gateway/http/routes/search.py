"""POST /v1/search"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import Unavailable
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import AUDITED, identity_of, place_of
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.connected import counted, while_connected
from frazil.gateway.http.middleware import client_of
from frazil.gateway.http.operation import BODY, SQL, TABLE, Errors, JsonObjects, Texts, fields, operation, route
from frazil.gateway.http.query_parameters import only
from frazil.requests import SearchRequest, decode_request

if TYPE_CHECKING:
    from frazil.gateway.search.searches import Searches
_ERRORS: Errors = {
    404: ("profile_not_found",),
    409: ("not_searched",),
    413: ("query_too_large",),
    422: (
        "bad_search",
        "bad_filter",
        "bad_vector",
        "bad_weights",
        "bad_k",
        "bad_token",
        "empty_query",
        "invalid_input",
        "masked_text",
        "no_text",
        "no_vectors",
        "own_vectors",
        "unknown_column",
        "wrong_dimension",
    ),
    500: ("artifact_refused", "shelf_unopened", "artifact_manifest_damaged", "artifact_manifest_missing"),
    503: (
        "no_search",
        "no_generation",
        "fresh_full",
        "fresh_gap",
        "artifact_of_other_stream",
        "artifact_other_model",
    ),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/search", run, gateway),
    ]


@operation(
    "Search a table by words, by a vector or by both",
    "read",
    {
        200: fields(
            hits=JsonObjects,
            generation=str | None,
            snapshot_id=int | None,
            token=str,
            mode=str,
            freshness=str,
            fresh_rows=int,
            ignored=Texts,
            elapsed_ms=float,
        )
    },
    SQL,
    BODY,
    TABLE,
    _ERRORS,
    body=SearchRequest,
)
async def run(gateway: Gateway, request: Request) -> Response:
    """The hits, and the state that they were found in. A caller that hangs up stops its search."""
    only(request)
    searches = searches_of(gateway)
    request.scope[AUDITED] = True
    wanted = decode_request(await json_body(request), SearchRequest)
    place = place_of(request)
    answering = searches.answer(wanted, identity_of(request), client=client_of(request.scope), waiting=place.waiting)
    return counted(request, Response(await while_connected(request, answering), media_type="application/json"))


def searches_of(gateway: Gateway) -> Searches:
    if gateway.searches is None:
        raise Unavailable(
            "this gateway answers no searches",
            code="no_search",
            hint="ask another gateway",
            retry_after_seconds=60.0,
        )
    return gateway.searches
