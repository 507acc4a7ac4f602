"""The askers of `bench query`, a process of their own: keep-alive connections that post queries and time the answers.

As little as HTTP/1.1 needs, on plain asyncio streams, so that what is measured is the server. Asked line by line, each
with what to `do`; an answer that is not the expected one ends the process, except for queries that are sent to fail.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

QUERY = "/v1/query"
_MOST_BYTES = 1 << 26


class Connection:
    """One keep-alive connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head

    @classmethod
    async def open(cls, url: str, token: str) -> Self:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=_MOST_BYTES)
        return cls(reader, writer, f"Host: {address.netloc}\r\nAuthorization: Bearer {token}\r\n")

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:")[1].split(b"\r\n", 1)[0])
        return int(answer.split(b" ", 2)[1]), await self._reader.readexactly(length)

    async def ask(self, body: bytes) -> tuple[float, dict[str, Any]]:
        """Seconds until the whole answer was here, and the answer."""
        began = time.perf_counter()
        status, content = await self.post(QUERY, body)
        seconds = time.perf_counter() - began
        if status != 200:
            raise SystemExit(f"refused: {status} {content[:500]!r}")
        return seconds, json.loads(content)

    def close(self) -> None:
        self._writer.close()


class Askers:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self.does: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "one_by_one": self.one_by_one,
            "side_by_side": self.side_by_side,
            "every": self.every,
            "read_back": self.read_back,
        }

    async def one_by_one(self, order: dict[str, Any]) -> dict[str, Any]:
        """Every query once, one after another, on one connection; one that nobody times opens it."""
        connection = await Connection.open(self._url, self._token)
        await connection.ask(b'{"sql": "SELECT 1"}')
        asked = [_told(*await connection.ask(_body(query))) for query in order["queries"]]
        connection.close()
        return {"asked": asked}

    async def side_by_side(self, order: dict[str, Any]) -> dict[str, Any]:
        """The queries again and again on several connections, until the time is over."""
        waiting = itertools.cycle([_body(query) for query in order["queries"]])
        connections = [await Connection.open(self._url, self._token) for _ in range(order["connections"])]
        processor, began = time.process_time(), time.perf_counter()
        until = began + order["seconds"]
        asked = await asyncio.gather(*(_ask_until(connection, waiting, until) for connection in connections))
        seconds = time.perf_counter() - began
        for connection in connections:
            connection.close()
        return {
            "asked": [each for one in asked for each in one],
            "seconds": seconds,
            "processor_seconds": time.process_time() - processor,
        }

    async def every(self, order: dict[str, Any]) -> dict[str, Any]:
        """One query after the other at fixed times, whether those before are answered or not. Counts the outcomes."""
        outcomes: Counter[str] = Counter()
        sent = []
        began = time.perf_counter()
        for number in range(int(order["seconds"] / order["every_seconds"])):
            query = order["queries"][number % len(order["queries"])]
            sent.append(asyncio.create_task(self._outcome(_body(query), outcomes)))
            await asyncio.sleep(max(0.0, began + (number + 1) * order["every_seconds"] - time.perf_counter()))
        await asyncio.gather(*sent)
        return {"outcomes": dict(outcomes)}

    async def _outcome(self, body: bytes, outcomes: Counter[str]) -> None:
        connection = await Connection.open(self._url, self._token)
        status, content = await connection.post(QUERY, body)
        connection.close()
        outcomes["answered" if status == 200 else str(json.loads(content)["error"]["code"])] += 1

    async def read_back(self, order: dict[str, Any]) -> dict[str, Any]:
        """Publish one event and ask for it at once: seconds from its receipt to the answer that holds it."""
        connection = await Connection.open(self._url, self._token)
        asked = []
        for event in order["events"]:
            began = time.perf_counter()
            status, content = await connection.post(f"/v1/tables/{order['table']}/events", _body({"events": [event]}))
            receipt_seconds = time.perf_counter() - began
            if status != 202:
                raise SystemExit(f"refused: {status} {content[:500]!r}")
            told = _told(*await connection.ask(_body({"sql": order["sql"], "parameters": [event["id"]]})))
            if told["rows"] != 1:
                raise SystemExit(f"event {event['id']} has its receipt and is in {told['rows']} rows of the answer")
            asked.append({**told, "receipt_seconds": receipt_seconds})
        connection.close()
        return {"asked": asked}


async def _ask_until(connection: Connection, waiting: Iterator[bytes], until: float) -> list[dict[str, Any]]:
    asked = []
    while time.perf_counter() < until:
        asked.append(_told(*await connection.ask(next(waiting))))
    return asked


def _told(seconds: float, answer: dict[str, Any]) -> dict[str, Any]:
    """What the benchmark has to know of an answer."""
    return {
        "seconds": seconds,
        "gateway_seconds": answer["elapsed_ms"] / 1000,
        "queued_seconds": answer["queued_ms"] / 1000,
        "rows": answer["row_count"],
        "first": answer["rows"][0] if answer["rows"] else None,
        "live_rows": sum(table["live_rows"] for table in answer["snapshots"].values()),
    }


def _body(query: dict[str, Any]) -> bytes:
    return json.dumps(query).encode()


def main() -> None:
    askers = Askers(os.environ["FRAZIL_URL"], os.environ["FRAZIL_TOKEN"])
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(asyncio.run(_do(askers, order))), flush=True)


async def _do(askers: Askers, order: dict[str, Any]) -> dict[str, Any]:
    return await askers.does[order["do"]](order)


if __name__ == "__main__":
    main()
