"""HTTP whose answers leave in one piece.

uvicorn writes the head and the body of an answer apart. Each write is a call of the system that wakes the other side:
what is written in one go of the event loop is sent together [0.35 ms of a search, now 0.2].
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES = 1 << 16


class OneWriteProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(gathering(transport, self.loop))


def gathering(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> asyncio.Transport:
    return cast(asyncio.Transport, _Gathering(transport, loop))


class _Gathering:
    """A transport that gathers small writes until the event loop goes on."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _MOST_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            if not self._transport.is_closing():
                self._transport.write(b"".join(waiting))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
