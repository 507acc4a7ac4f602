"""The searchers of `bench search`, a process of their own: keep-alive connections that post searches by vector.

Asked line by line, each with what to `do`: every query once, one after another, or again and again on several
connections. An answer that is not the expected one ends the process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.askers import Connection

SEARCH = "/v1/search"


class Searchers:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    async def do(self, order: dict[str, Any]) -> dict[str, Any]:
        bodies = _bodies(order)
        return await (self._side_by_side(order, bodies) if "seconds" in order else self._one_by_one(bodies))

    async def _one_by_one(self, bodies: list[bytes]) -> dict[str, Any]:
        connection = await Connection.open(self._url, self._token)
        asked = [await _told(connection, body) for body in bodies]
        connection.close()
        return {"asked": asked}

    async def _side_by_side(self, order: dict[str, Any], bodies: list[bytes]) -> dict[str, Any]:
        waiting = itertools.cycle(bodies)
        connections = [await Connection.open(self._url, self._token) for _ in range(order["connections"])]
        processor, began = time.process_time(), time.perf_counter()
        until = began + order["seconds"]
        asked = await asyncio.gather(*(_until(connection, waiting, until) for connection in connections))
        seconds = time.perf_counter() - began
        for connection in connections:
            connection.close()
        return {
            "asked": [each for one in asked for each in one],
            "seconds": seconds,
            "processor_seconds": time.process_time() - processor,
        }


def _bodies(order: dict[str, Any]) -> list[bytes]:
    """Searches as they go over the wire, made before anything is timed."""
    shared = {"table": order["table"], "mode": "vector", "k": order["k"], "freshness": order["freshness"]}
    shared |= {"columns": ["slot"], "snippet": False}
    queries = np.load(order["queries"])
    return [json.dumps({**shared, "vector": queries[number].tolist()}).encode() for number in order["numbers"]]


async def _until(connection: Connection, waiting: Iterator[bytes], until: float) -> list[dict[str, Any]]:
    asked = []
    while time.perf_counter() < until:
        asked.append(await _told(connection, next(waiting)))
    return asked


async def _told(connection: Connection, body: bytes) -> dict[str, Any]:
    """Seconds until the whole answer was here, those that the gateway counted, and the ids of the hits."""
    began = time.perf_counter()
    status, content = await connection.post(SEARCH, body)
    seconds = time.perf_counter() - began
    if status != 200:
        raise SystemExit(f"refused: {status} {content[:500]!r}")
    answer = json.loads(content)
    return {
        "seconds": seconds,
        "gateway_seconds": answer["elapsed_ms"] / 1000,
        "ids": [hit["id"] for hit in answer["hits"]],
        "generation": answer["generation"],
    }


def main() -> None:
    searchers = Searchers(os.environ["FRAZIL_URL"], os.environ["FRAZIL_TOKEN"])
    for line in sys.stdin:
        print(json.dumps(asyncio.run(searchers.do(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
