"""GET /v1/visibility: whether the writes of a freshness token are committed."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import InvalidInput
from frazil.events import Token
from frazil.gateway.gateway import Gateway, committed_in
from frazil.gateway.http.authorization import known_only, place_of
from frazil.gateway.http.connected import while_connected
from frazil.gateway.http.operation import PARAMETER, TABLE, Parameter, exactly, operation, route
from frazil.gateway.http.query_parameters import only, seconds
from frazil.gateway.http.responses import answer

_MOST_WAIT_SECONDS = 300.0
_VISIBLE = exactly(visible=bool, snapshot_id=int | None, watermark=str)


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/visibility", show, gateway),
    ]


@operation(
    "Whether the writes of a token are committed",
    "read",
    {200: exactly(visible=bool, tables={str: _VISIBLE})},
    TABLE,
    PARAMETER,
    {
        422: ("bad_token",),
        409: ("token_of_another_stream", "token_beyond_head", "events_lost", "not_streamed"),
        429: ("too_many_waits",),
    },
    query=(Parameter("token", str, required=True), Parameter("wait_s", float)),
)
async def show(gateway: Gateway, request: Request) -> Response:
    """Whether the writes of a token are committed, and in which snapshots; waits for it up to `wait_s`.

    A caller that hangs up stops its wait.
    """
    only(request, "token", "wait_s")
    text = request.query_params.get("token")
    if not text:
        raise InvalidInput("`token` is missing", code="bad_token", hint="pass the `token` of a receipt")
    deadline = time.monotonic() + seconds(request, "wait_s", default=0.0, most=_MOST_WAIT_SECONDS)
    token = Token.parse(text)
    for name in token.marks:
        known_only(request, name)
    for name, mark in token.marks.items():
        await gateway.check_reached(name, mark)
    body = await _look(gateway, token, 0.0)
    if not body["visible"] and deadline > time.monotonic():
        with place_of(request).waiting():
            body = await while_connected(request, _look(gateway, token, deadline))
    return answer(body)


async def _look(gateway: Gateway, token: Token, deadline: float) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for name, mark in token.marks.items():
        left = max(0.0, deadline - time.monotonic())
        table, visible = await gateway.reached(name, mark, timeout_seconds=left)
        tables[name.removeprefix("main.")] = {
            "visible": visible,
            "snapshot_id": committed_in(table, mark.position) if visible else None,
            "watermark": str(Token.of(name, table.stream_identity, table.watermark - 1)),
        }
    return {"visible": all(entry["visible"] for entry in tables.values()), "tables": tables}
