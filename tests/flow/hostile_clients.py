"""Hostile clients: each attack is a program of its own, `python -m tests.flow.hostile_clients ATTACK PLACE SECONDS`.

`PLACE` is JSON: host, port, the attacker's token, a freshness token far beyond the head of the stream, the tables. An
attack ends by itself after SECONDS and goes to that one address of this machine only. It prints one line of JSON: how
often it was answered with which status (0: the connection ended without an answer).

Attackers run at a low priority: they stand for programs on other machines, whose processors are not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import json
import os
import random
import resource
import socket
import struct
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

ABRUPT = struct.pack("ii", 1, 0)
"""SO_LINGER of a connection that is reset when it is closed."""
SECOND = "SELECT count(*) FROM range(40000) a, range(4000) b WHERE a.range * b.range % 7 = 3"
"""A query of about a second."""
RUNAWAYS = (
    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3",
    "SELECT list(i) FROM range(10000000000) r(i)",
    "SELECT len(range(4000000000))",
    "SELECT count(DISTINCT hash(i)) FROM range(10000000000) r(i)",
)
LARGE_ANSWER = "SELECT i, repeat('x', 200) FROM range(200000) r(i)"


@dataclass
class Attack:
    host: str
    port: int
    secret: str
    far_token: str
    tables: dict[str, str]
    deadline: float = 0.0
    answers: Counter[int] = field(default_factory=Counter)
    chance: random.Random = field(default_factory=lambda: random.Random(12))

    def is_on(self) -> bool:
        return asyncio.get_running_loop().time() < self.deadline

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPT)
            writer.transport.abort()

    def head(self, method: str, path: str, **headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.secret}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def request(self, method: str, path: str, body: Any = b"", **headers: str) -> bytes:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content_Type": "application/json", "Content_Length": str(len(content)), **headers}
        return self.head(method, path, **headers) + content

    async def send(self, request: bytes, *, patience_seconds: float | None = None) -> int:
        """One request on a connection of its own; the status of its answer."""
        left = self.deadline - asyncio.get_running_loop().time()
        try:
            async with self.connection() as (reader, writer):
                async with asyncio.timeout(min(left, patience_seconds or left)):
                    writer.write(request)
                    await writer.drain()
                    line = await reader.readline()
                status = int(line.split()[1]) if line.startswith(b"HTTP/") else 0
        except (OSError, TimeoutError, ValueError):
            status = 0
        self.answers[status] += 1
        return status

    async def many(self, count: int, once: Callable[[], Awaitable[object]], *, pause_seconds: float = 0.05) -> None:
        """So many at once, each again and again until the attack is over."""

        async def again() -> None:
            while self.is_on():
                with contextlib.suppress(OSError):
                    await once()
                await asyncio.sleep(pause_seconds)

        tasks = [asyncio.create_task(again()) for _ in range(count)]
        await asyncio.wait(tasks, timeout=max(0.0, self.deadline - asyncio.get_running_loop().time()) + 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def reset_queries(attack: Attack) -> None:
    """A dozen connections send a query of a second and reset after 0 to 60 ms."""
    query = attack.request("POST", "/v1/query", {"sql": SECOND})
    await attack.many(
        12, lambda: attack.send(query, patience_seconds=attack.chance.uniform(0.0, 0.06)), pause_seconds=0
    )


async def endless_waits(attack: Attack) -> None:
    """300 waits for a write that nobody made: by visibility, and by queries that ask for it."""
    wait = attack.request("GET", f"/v1/visibility?token={attack.far_token}&wait_s=300")
    read = f"SELECT count(*) FROM {attack.tables['plain']}"
    query = attack.request("POST", "/v1/query", {"sql": read, "min_token": attack.far_token, "timeout_s": 300})
    await attack.many(300, lambda: attack.send(attack.chance.choice((wait, query))), pause_seconds=0.5)


async def commit_waits(attack: Attack) -> None:
    """200 producers that each wait for their commit, and hang up before it came."""
    path = f"/v1/tables/{attack.tables['plain']}/events?wait=visible&timeout_s=300"

    async def once() -> None:
        body = {"events": [{"id": uuid.uuid4().hex, "data": {"number": 1}}]}
        await attack.send(attack.request("POST", path, body), patience_seconds=attack.chance.uniform(0.0, 1.0))

    await attack.many(200, once, pause_seconds=0.5)


async def absent_bodies(attack: Attack) -> None:
    """300 requests whose body never comes."""
    head = attack.head("POST", f"/v1/tables/{attack.tables['plain']}/events", Content_Length="1000")
    await attack.many(300, lambda: attack.send(head), pause_seconds=0.5)


async def slow_bodies(attack: Attack) -> None:
    """300 bodies of a byte a second."""
    head = attack.head("POST", f"/v1/tables/{attack.tables['plain']}/events", Content_Length="1000")

    async def once() -> None:
        async with attack.connection() as (reader, writer):
            writer.write(head)
            while attack.is_on() and not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(1)

    await attack.many(300, once, pause_seconds=0.5)


async def packed_bombs(attack: Attack) -> None:
    """40 bodies of 59 kB at once, each 60 MB when it is unpacked."""
    body = gzip.compress(b'{"events": [' + b" " * (60 << 20) + b"]}", 9)
    bomb = attack.request("POST", f"/v1/tables/{attack.tables['plain']}/events", body, Content_Encoding="gzip")
    await attack.many(40, lambda: attack.send(bomb))


async def endless_headers(attack: Attack) -> None:
    """50 connections whose headers never end."""
    line = b"X-Filler: " + b"x" * 1000 + b"\r\n"

    async def once() -> None:
        async with attack.connection() as (reader, writer):
            writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n")
            while attack.is_on() and not reader.at_eof():
                writer.write(line * 16)
                await writer.drain()
                await asyncio.sleep(0.01)

    await attack.many(50, once)


async def half_open(attack: Attack) -> None:
    """A thousand connections that begin a request and say no more."""

    async def once() -> None:
        async with attack.connection() as (reader, writer):
            writer.write(b"GET /v1/health HTTP/1.1\r\nHost:")
            left = attack.deadline - asyncio.get_running_loop().time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left)):
                    await reader.read()

    await attack.many(1000, once, pause_seconds=0.5)


async def many_partitions(attack: Attack) -> None:
    """Batches of 1,200 events on 1,200 days each, into a table with a partition a day."""
    first = 719_163  # 1970-01-01

    async def once() -> None:
        start = first + attack.chance.randrange(15_000)
        days = (datetime.date.fromordinal(start + number) for number in range(1200))
        events = [{"id": uuid.uuid4().hex, "data": {"at": f"{day}T12:00:00Z"}} for day in days]
        await attack.send(attack.request("POST", f"/v1/tables/{attack.tables['daily']}/events", {"events": events}))

    await attack.many(1, once, pause_seconds=3.0)


async def poison_values(attack: Attack) -> None:
    """Values that no store has a path for, as partitions."""
    values = ("x" * 300, "é" * 200, "../" * 90, "%" * 120, "\u0000", "a/b", "")

    async def once() -> None:
        events = [{"id": uuid.uuid4().hex, "data": {"city": attack.chance.choice(values)}}]
        await attack.send(attack.request("POST", f"/v1/tables/{attack.tables['by_city']}/events", {"events": events}))

    await attack.many(4, once, pause_seconds=0.2)


async def runaway_queries(attack: Attack) -> None:
    """20 queries at once that take all the time and memory they can get."""

    async def once() -> None:
        await attack.send(attack.request("POST", "/v1/query", {"sql": attack.chance.choice(RUNAWAYS), "timeout_s": 5}))

    await attack.many(20, once)


async def exploding_uploads(attack: Attack) -> None:
    """Files of some hundred kB that unpack to hundreds of MB, in several ways of packing."""
    path = f"/v1/tables/{attack.tables['plain']}/loads?filename="
    packed = gzip.compress(b"number\n" + b"1\n" * (100 << 20), 1)

    async def once() -> None:
        await attack.send(attack.request("POST", f"{path}{uuid.uuid4().hex}.csv.gz", packed))

    await attack.many(4, once, pause_seconds=0.5)


async def slow_readers(attack: Attack) -> None:
    """50 who ask for 40 MB and never read them."""
    query = attack.request("POST", "/v1/query", {"sql": LARGE_ANSWER, "max_rows": 1_000_000})

    async def once() -> None:
        async with attack.connection() as (reader, writer):
            writer.write(query)
            await reader.readline()
            await asyncio.sleep(max(0.0, attack.deadline - asyncio.get_running_loop().time()))

    await attack.many(50, once)


async def floods(attack: Attack) -> None:
    """As many small requests as fit, half of them with a wrong token, on connections that are not kept."""
    event = {"events": [{"id": "same", "data": {"number": 1}}]}
    good = attack.request("POST", f"/v1/tables/{attack.tables['plain']}/events", event)
    wrong = good.replace(attack.secret.encode(), b"frz_" + b"0" * 40)
    await attack.many(16, lambda: attack.send(attack.chance.choice((good, wrong))), pause_seconds=0)


ATTACKS: dict[str, Callable[[Attack], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        reset_queries,
        endless_waits,
        commit_waits,
        absent_bodies,
        slow_bodies,
        packed_bombs,
        endless_headers,
        half_open,
        many_partitions,
        poison_values,
        runaway_queries,
        exploding_uploads,
        slow_readers,
        floods,
    )
}


async def _run(name: str, place: dict[str, Any], seconds: float) -> Counter[int]:
    attack = Attack(**place)
    attack.deadline = asyncio.get_running_loop().time() + seconds
    await ATTACKS[name](attack)
    return attack.answers


def main() -> None:
    os.nice(15)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    name, place, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_run(name, json.loads(place), float(seconds)))), flush=True)


if __name__ == "__main__":
    main()
