"""Connected callers: work that ends when its caller hangs up, and answers that count until they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from frazil.errors import FrazilError
from frazil.gateway.http.authorization import place_of

T = TypeVar("T")


class ClientGone(FrazilError):
    """Nobody waits for this answer any longer."""

    code = "client_gone"
    status = 499


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns; it is cancelled, and `ClientGone` raised, as soon as the caller hangs up.

    To be called when the body has been read: what is left of it is read too, and dropped. The next request on the
    connection is not touched: the server keeps each request's messages apart.
    """
    working = asyncio.create_task(work, name=f"answer {request.method} {request.url.path}")
    leaving = asyncio.create_task(_disconnected(request), name="wait for the caller to hang up")
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone("the caller hung up")
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait({working, leaving})


def counted(request: Request, response: Response) -> Response:
    """The answer, counted as memory of its caller until that one has read it: who asks for much and reads nothing must
    not hold everybody's memory."""
    place_of(request).take(len(response.body))
    return response


async def check_connected(request: Request) -> None:
    """Raise `ClientGone` if the caller has hung up. To be called when the body has been read."""
    if await request.is_disconnected():
        raise ClientGone("the caller hung up")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
