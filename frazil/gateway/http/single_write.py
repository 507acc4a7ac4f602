"""Single write: a transport that sends what is written in one turn of the event loop together.

uvicorn writes the head and the body of an answer apart. Each write is a call of the system that wakes the other side:
what is written in one go of the event loop is sent together [0.35 ms of a search, now 0.2].
"""

from __future__ import annotations

import asyncio
from typing import Any

_MOST_BYTES = 1 << 16


class SingleWriteTransport(asyncio.Transport):
    """Gathers small writes until the event loop goes on; everything else is the transport's."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._size = 0
        self._written = 0

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _MOST_BYTES:
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._waiting, self._size = [], 0
        self._transport.abort()

    def unsent(self) -> int:
        """Bytes that the peer has not taken yet and that the system does not hold for it either."""
        return self._size + self._transport.get_write_buffer_size()

    def sent(self) -> int:
        """Bytes handed to the system since the connection was made."""
        return self._written - self._transport.get_write_buffer_size()

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, size, self._size = self._waiting, [], self._size, 0
        if self._transport.is_closing():
            return
        self._written += size
        if size > _MOST_BYTES:
            self._transport.writelines(waiting)  # uvloop sends them together without a copy
        else:
            self._transport.write(b"".join(waiting))

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
