"""A server that answers searches as a test tells it, and what the searchers tell of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from benchmarks.searchers import Searchers

Answering = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]
_WAIT_SECONDS = 120


async def told_by(answering: Answering, order: dict[str, Any]) -> dict[str, Any]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length:")[1].split("\r\n", 1)[0])
                status, body = answering(head.split(" ", 2)[1], json.loads(await reader.readexactly(length)))
                content = json.dumps(body).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(_WAIT_SECONDS):
        try:
            return await Searchers(f"http://127.0.0.1:{port}", "frz_x").do(order)
        finally:
            server.close()
