"""Queries that only wait: counted as such, ended with their caller, and refused where no waiting would help."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ByteSize

from frazil.access import AccessSettings
from frazil.bus.memory import MemoryBus
from frazil.events import Token
from frazil.lake.catalog import Lake
from frazil.serving.sql import QueryPool, QuerySettings
from tests.gateway.http.harness import commit, event
from tests.gateway.http.sockets import Client, Port, on_a_port, until
from tests.gateway.query.conftest import House


@pytest.fixture
async def port(lake: Lake, tmp_path: Path) -> AsyncIterator[Port]:
    bus = MemoryBus(max_bytes=1 << 20)
    pool = QueryPool(QuerySettings(workers=1), lake.warehouse, readable=[tmp_path / "audit"])
    access = AccessSettings(token_memory=ByteSize(40_000_000))
    async with on_a_port(bus, lake, tmp_path, pool=pool, access=access) as started:
        await until(lambda: pool.status()["ready"] > 0)
        await started.declare()
        yield started


def _asked(token: str) -> bytes:
    sql = "SELECT count(*) FROM orders"
    return json.dumps({"sql": sql, "freshness": "committed", "min_token": token, "timeout_s": 300}).encode()


async def test_queries_that_wait_for_a_commit(port: Port, lake: Lake) -> None:
    greedy, others = await port.token("read:orders", "sql"), await port.token("read:orders", "sql")
    receipt = await port.accept([event("a")])
    quotas = port.gateway.quotas
    most = quotas.limit("waits").per_token
    clients = [await port.begin("POST /v1/query", greedy, _asked(receipt["token"])) for _ in range(most + 5)]
    await until(lambda: sum(client.has_answer() for client in clients) == 5 and quotas.used("waits") == most)
    refused = [await client.answer() for client in clients if client.has_answer()]
    assert {(status, body["error"]["code"]) for status, _, body in refused} == {(429, "too_many_waits")}
    for headers in (others, {}):
        answer = await port.http.post("/v1/query", json={"sql": "SELECT count(*) FROM orders"}, headers=headers)
        assert answer.json()["rows"] == [[1]], "live answers need no commit"
    for number, client in enumerate(clients):
        client.hang_up(abrupt=bool(number % 2))
    await until(lambda: quotas.used("requests") == quotas.used("waits") == 0)
    late = await port.begin("POST /v1/query", greedy, _asked(receipt["token"]))
    await until(lambda: quotas.used("waits") == 1)
    await commit(port.gateway.bus, lake)
    status, _, body = await late.answer()
    assert (status, body["rows"]) == (200, [[1]])
    late.hang_up()


async def test_an_answer_that_nobody_reads_counts_until_it_is_read(port: Port) -> None:
    greedy, others = await port.token("sql"), await port.token("sql")
    quotas = port.gateway.quotas
    most = quotas.limit("bytes").per_token
    large = json.dumps({"sql": "SELECT repeat('x', 1000) FROM range(10000)", "max_rows": 10_000}).encode()
    clients = [await port.begin("POST /v1/query", greedy, large)]
    await until(lambda: quotas.used("bytes") > 10_000_000)
    while len(clients) * 10_000_000 < most:
        clients.append(await port.begin("POST /v1/query", greedy, large))
    clients += [await port.begin("POST /v1/query", greedy, large) for _ in range(2)]
    await until(lambda: "too_many_bytes_in_flight" in _codes(clients), 120)
    assert quotas.used("bytes") <= most
    small = await port.http.post("/v1/query", json={"sql": "SELECT 1"}, headers=others)
    assert small.json()["rows"] == [[1]]
    for client in clients:
        client.hang_up(abrupt=True)
    await until(lambda: quotas.used("requests") == quotas.used("bytes") == 0)


def _codes(clients: list[Client]) -> str:
    """What the clients have got so far, as far as it is at hand."""
    return " ".join(bytes(client.reader._buffer[:2000]).decode() for client in clients)  # type: ignore[attr-defined]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("freshness", ["live", "committed"])
async def test_a_token_beyond_the_head_is_refused_at_once(house: House, freshness: str) -> None:
    for kind in ({}, {"kind": "entity", "key": ["n"]}):
        name = await house.table({"n": "long"}, **kind)
        mark = Token.parse(await house.send(name, {"n": 1})).marks[f"main.{name}"]
        beyond = str(Token.of(f"main.{name}", mark.stream, mark.position + (1 << 30)))
        sql = f"SELECT count(*) FROM {name}"
        told = await house.refused(sql, freshness=freshness, min_token=beyond, timeout_s=300)
        assert told == (409, "token_beyond_head")
        within = str(Token.of(f"main.{name}", mark.stream, mark.position))
        assert await house.rows(sql, min_token=within) == [[1]]
