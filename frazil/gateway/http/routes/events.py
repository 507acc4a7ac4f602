"""POST /v1/tables/{table}/events"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import ingest_only, place_of
from frazil.gateway.http.bodies import reader_of
from frazil.gateway.http.connected import check_connected, while_connected
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    JSON,
    PARAMETER,
    TABLE,
    Errors,
    JsonObjects,
    Parameter,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, seconds, table_of
from frazil.gateway.http.responses import answer
from frazil.gateway.ingest.receipt import Receipt

_DEFAULT_WAIT_SECONDS = 10.0
_MOST_WAIT_SECONDS = 300.0
_RECEIPT = exactly(table=str, accepted=int, duplicates=int, token=str)
_ERRORS: Errors = {
    409: ("id_conflict", "is_a_history", "not_streamed", "events_lost"),
    413: ("event_too_large", "too_deep", "too_many_events", "too_many_fields"),
    415: ("unsupported_media_type",),
    422: ("bad_events", "empty_batch", "invalid_arrow", "invalid_body", "invalid_json"),
    429: ("too_many_partitions_today",),
    503: ("bus_full", "busy", "schema_moved", "table_replaced"),
    504: ("visibility_timeout",),
}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("POST", "/v1/tables/{table}/events", publish, gateway),
    ]


@operation(
    "Take in a batch of events, all or nothing",
    "write",
    {202: _RECEIPT, 200: exactly(**_RECEIPT.required, visible=bool, snapshot_id=int | None)},
    FORBIDDEN,
    BODY,
    TABLE,
    PARAMETER,
    _ERRORS,
    query=(Parameter("wait"), Parameter("timeout_s", float)),
    body=fields(events=JsonObjects),
    takes=(JSON, "application/x-ndjson", "application/vnd.apache.arrow.stream"),
)
async def publish(gateway: Gateway, request: Request) -> Response:
    """Take in a batch, all or nothing: 202 with the receipt, or 200 once it is visible if the caller waits."""
    name = table_of(request)
    ingest_only(request, name)
    only(request, "wait", "timeout_s")
    wait = request.query_params.get("wait")
    if wait not in (None, "visible"):
        raise InvalidInput(f"`wait` is {wait[:40]!r}", code="bad_parameter", hint="wait=visible, or leave it out")
    timeout_seconds = seconds(request, "timeout_s", default=_DEFAULT_WAIT_SECONDS, most=_MOST_WAIT_SECONDS)
    await gateway.directory.table(name)
    if wait is None:
        return answer((await _ingest(gateway, request, name, urgent=False)).body(), 202)
    # Counted before anything is written, so that a refusal means that nothing was.
    with place_of(request).waiting():
        receipt = await _ingest(gateway, request, name, urgent=True)
        # Up to here the request goes on whoever hangs up: others share its write to the bus.
        snapshot_id = await while_connected(request, gateway.wait_visible(receipt, timeout_seconds=timeout_seconds))
    return answer({**receipt.body(), "visible": True, "snapshot_id": snapshot_id})


async def _ingest(gateway: Gateway, request: Request, name: str, *, urgent: bool) -> Receipt:
    limit = gateway.limits.max_body_bytes
    with await reader_of(request).read(request, limit) as body:
        content = await body.unpacked(request.headers.get("content-encoding", ""), limit)
        return await gateway.ingest(
            name,
            content,
            request.headers.get("content-type", ""),
            urgent=urgent,
            place=place_of(request),
            check_caller=partial(check_connected, request),
        )
