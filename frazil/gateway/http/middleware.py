"""Middleware of every route: the token, its rate and quotas, errors in one shape, and request metrics."""

from __future__ import annotations

import contextlib
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frazil.access import AccessControl, AuditEntry, Identity, id_of
from frazil.errors import Denied, FrazilError, InvalidInput, NotFound, Unavailable
from frazil.events.declaration import table_name
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import AUDITED, IDENTITY, PLACE, is_admin
from frazil.gateway.http.bodies import READER, BodyReader
from frazil.gateway.http.request_errors import BadRequest
from frazil.gateway.http.responses import error_answer
from frazil.gateway.http.server_paths import ServerPaths

log = logging.getLogger(__name__)

OPEN = ("/", "/v1/health")
"""What answers without a token, and takes no place: it must answer while all of them are taken."""


class Guard:
    def __init__(self, app: ASGIApp, gateway: Gateway, access: AccessControl, bodies: BodyReader) -> None:
        self._app = app
        self._gateway = gateway
        self._access = access
        self._bodies = bodies
        self._server_paths = ServerPaths.of(gateway)

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
        scope["app"] = self
        scope[READER] = self._bodies
        try:
            await self._serve(scope, receive, noting_status)
        except Exception as error:
            if status:
                raise  # the answer has begun: the server ends the connection, which is all that can still be said
            self._note_refusal(scope, error, time.monotonic() - started)
            await error_answer(self._for_caller(scope, error))(scope, receive, noting_status)
        finally:
            metrics.request_ended(_route(scope), status, time.monotonic() - started)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route answer, in a place of its own. Who has no valid token gets none."""
        if scope["path"] in OPEN:
            if bearer := _bearer(scope):
                # A wrong token gets the answer for everybody: a probe must not fail because its token has expired.
                with contextlib.suppress(Denied, Unavailable):
                    scope[IDENTITY] = await self._access.identify(bearer)
            await self._app(scope, receive, send)
            return
        scope[IDENTITY] = identity = await self._access.identify(_bearer(scope))
        self._access.admit(identity)
        with self._gateway.quotas.request(identity) as scope[PLACE]:
            await self._app(scope, receive, send)

    def _for_caller(self, scope: Scope, error: Exception) -> Exception:
        """The error without what is for whoever runs the place: details of failures, and where files are."""
        if isinstance(error, FrazilError) and not is_admin(scope):
            if error.status >= 500 and not isinstance(error, Unavailable):
                error.details = None
            self._server_paths.hide(error)
        return error

    def _note_refusal(self, scope: Scope, error: Exception, seconds: float) -> None:
        """Write down who was refused what. A table that is not there is logged too: it may be one that is hidden."""
        if scope.get(AUDITED) or not isinstance(error, FrazilError):
            return
        hidden = error.code == "table_not_found" and not is_admin(scope)
        if error.status not in (401, 403, 429) and not hidden:
            return
        identity: Identity | None = scope.get(IDENTITY)
        self._access.refused(
            AuditEntry(
                action="denied",
                outcome=error.code,
                token_id=identity.id if identity else id_of(_bearer(scope)),
                token_name=identity.name if identity else None,
                client=client_of(scope),
                tables=_table_in(scope),
                ms=round(seconds * 1000, 3),
                subject=f"{scope['method']} {_route(scope)}",
            )
        )


async def no_such_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("there is nothing at this address", code="no_such_route", hint="GET / lists what there is")


def client_of(scope: Scope) -> str | None:
    """The address that the request came from."""
    client = scope.get("client")
    return str(client[0]) if client else None


def _bearer(scope: Scope) -> str:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) > 1:
        raise BadRequest("the request has two Authorization headers", code="two_authorizations", hint="send one token")
    scheme, _, token = (given[0] if given else b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _table_in(scope: Scope) -> tuple[str, ...]:
    try:
        return (table_name(scope["path_params"]["table"]),)
    except (KeyError, InvalidInput):
        return ()


def _route(scope: Scope) -> str:
    """The route's pattern, so that table names do not become labels."""
    route = scope.get("route")
    return str(getattr(route, "path", "none"))
