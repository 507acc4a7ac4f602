"""What stands before every route: the token, the number of requests at once, errors in one shape, and the count."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frazil.errors import Denied, NotFound, Unavailable
from frazil.gateway.http.answers import error_answer
from frazil.gateway.http.gateway import Gateway

log = logging.getLogger(__name__)

OPEN = ("/", "/v1/health")
"""What answers without a token."""


class Guard:
    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        self._serving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics = self._gateway.metrics
        metrics.request_began()
        self._serving += 1
        scope["app"] = self
        try:
            self._admit(scope)
            await self._app(scope, receive, noting_status)
        except Exception as error:
            if status:
                raise  # the answer has begun: the server ends the connection, which is all that can still be said
            await error_answer(error)(scope, receive, noting_status)
        finally:
            self._serving -= 1
            metrics.request_ended(_route(scope), status, time.monotonic() - started)

    def _admit(self, scope: Scope) -> None:
        if scope["path"] in OPEN:
            return
        if not self._gateway.knows(_bearer(scope)):
            raise Denied(
                "this needs a valid token",
                hint="send Authorization: Bearer <token>; `up` wrote it to admin.token in the data directory",
            )
        if self._serving > self._gateway.settings.max_concurrent_requests:
            raise Unavailable(
                f"{self._gateway.settings.max_concurrent_requests} requests are being served already",
                code="overloaded",
                hint="try again in a moment, with fewer connections",
            )


async def no_such_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("there is nothing at this address", code="no_such_route", hint="GET / lists what there is")


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def _route(scope: Scope) -> str:
    """The route's pattern, so that table names do not become labels."""
    route = scope.get("route")
    return str(getattr(route, "path", "none"))
