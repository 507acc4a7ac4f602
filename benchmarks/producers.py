"""The producers of `bench ingest`, a process of their own: keep-alive connections that post bodies one after another.

As little as HTTP/1.1 needs, on plain asyncio streams, so that what is measured is the server. Asked line by line: a
file of bodies to post, answered with the seconds it took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.report import percentile


async def post_all(url: str, token: str, table: str, bodies: list[bytes], producers: int) -> dict[str, Any]:
    """Post every body once; raises on any answer but 202."""
    address = urlsplit(url)
    head = (
        f"POST /v1/tables/{table}/events HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/x-ndjson\r\nContent-Length: "
    ).encode()
    waiting = iter(bodies)
    seconds: list[float] = []
    connections = [await asyncio.open_connection(address.hostname, address.port) for _ in range(producers)]
    started = time.perf_counter()
    await asyncio.gather(*(_produce(reader, writer, head, waiting, seconds) for reader, writer in connections))
    total = time.perf_counter() - started
    for _, writer in connections:
        writer.close()
    return {"seconds": total, "p50_s": percentile(seconds, 0.5), "p99_s": percentile(seconds, 0.99)}


async def _produce(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: bytes,
    waiting: Iterator[bytes],
    seconds: list[float],
) -> None:
    for body in waiting:
        began = time.perf_counter()
        writer.write(b"%b%d\r\n\r\n" % (head, len(body)))
        writer.write(body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n", 1)[0])
        content = await reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 202"):
            raise SystemExit(f"refused: {answer[:60]!r} {content[:500]!r}")
        seconds.append(time.perf_counter() - began)


def read_bodies(path: Path) -> list[bytes]:
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        found.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def main() -> None:
    url, token = os.environ["FRAZIL_URL"], os.environ["FRAZIL_TOKEN"]
    for line in sys.stdin:
        asked = json.loads(line)
        bodies = read_bodies(Path(asked["bodies"]))
        print(json.dumps(asyncio.run(post_all(url, token, asked["table"], bodies, asked["producers"]))), flush=True)


if __name__ == "__main__":
    main()
