"""One token that waits, floods or stalls takes its own share: others, and admins above all, go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil.access import AccessSettings, id_of
from frazil.bus.memory import MemoryBus
from frazil.events import Token
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import NDJSON, Running, commit, event, ndjson
from tests.gateway.http.sockets import Client, Port, on_a_port, until

MANY = 300


async def _flood(
    port: Port, line: str, headers: dict[str, str], body: bytes = b"", announced: int | None = None
) -> list[Client]:
    return [await port.begin(line, headers, body, announced=announced) for _ in range(MANY)]


async def _goes_on_for_others(port: Port, others: dict[str, str]) -> None:
    """Publish, look and ask, as another token and as the admin."""
    for headers in (others, {}):
        sent = await port.http.post(
            "/v1/tables/orders/events", json={"events": [event(f"x{id(headers)}")]}, headers=headers
        )
        assert sent.status_code == 202, sent.text
        assert (await port.http.get("/v1/tables", headers=headers)).status_code == 200
    assert (await port.http.get("/v1/health", headers={"authorization": ""})).status_code == 200


async def test_waits_of_one_token_shut_nobody_out_and_end_with_their_callers(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    async with on_a_port(memory_bus, lake, tmp_path) as port:
        await port.declare()
        greedy, others = await port.token("ingest:orders"), await port.token("ingest:orders")
        quotas = port.gateway.quotas
        receipt = await port.accept([event("a")])
        clients = await _flood(port, f"GET /v1/visibility?token={receipt['token']}&wait_s=300", greedy)
        most = quotas.limit("waits").per_token
        await until(lambda: sum(client.has_answer() for client in clients) == MANY - most)
        assert quotas.used("waits") == quotas.used("requests") == most
        refused = next(client for client in clients if client.has_answer())
        status, headers, body = await refused.answer()
        assert (status, body["error"]["code"]) == (429, "too_many_waits")
        assert int(headers["retry-after"]) >= 1 and body["error"]["hint"]
        await _goes_on_for_others(port, others)
        for number, client in enumerate(clients):
            client.hang_up(abrupt=bool(number % 2))
        await until(lambda: quotas.used("requests") == 0)
        assert quotas.used("waits") == 0
        late = await port.begin(f"GET /v1/visibility?token={receipt['token']}&wait_s=300", greedy)
        await until(lambda: quotas.used("waits") == 1)
        await commit(memory_bus, lake)
        status, _, body = await late.answer()
        assert (status, body["visible"]) == (200, True), "there is room for it again"
        late.hang_up()


async def test_waits_for_a_commit_with_the_events(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """A refused wait wrote nothing; one that hung up wrote everything, in one piece with the others."""
    async with on_a_port(memory_bus, lake, tmp_path) as port:
        await port.declare()
        greedy, others = await port.token("ingest:orders"), await port.token("ingest:orders")
        quotas = port.gateway.quotas
        most = quotas.limit("waits").per_token
        clients = []
        for number in range(most + 10):
            body = ndjson([event(f"e{number}")])
            line = "POST /v1/tables/orders/events?wait=visible&timeout_s=300"
            clients.append(await port.begin(line, {**greedy, **NDJSON}, body))
        await until(lambda: sum(client.has_answer() for client in clients) == 10)
        taken = {f"e{number}" for number, client in enumerate(clients) if not client.has_answer()}
        await _goes_on_for_others(port, others)
        stream = await memory_bus.open(lake.table("main.orders").stream)
        head = await stream.head()
        for client in clients:
            client.hang_up(abrupt=True)
        await until(lambda: quotas.used("requests") == 0)
        assert quotas.used("waits") == quotas.used("bytes") == 0
        assert await stream.head() == head
        await commit(memory_bus, lake)
        stored = set(lake.catalog.load_table("main.orders").scan().to_arrow()["_id"].to_pylist())
        assert {name for name in stored if name.startswith("e")} == taken


async def test_bodies_that_never_come(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with on_a_port(memory_bus, lake, tmp_path) as port:
        await port.declare()
        greedy, others = await port.token("ingest:orders"), await port.token("ingest:orders")
        quotas = port.gateway.quotas
        line = "POST /v1/tables/orders/events"
        clients = await _flood(port, line, {**greedy, **NDJSON}, b'{"id": ', announced=1000)
        assert quotas.used("requests", _id(greedy)) <= quotas.limit("requests").per_token
        await _goes_on_for_others(port, others)
        # After a second those whose bodies do not come are waits, of which there may be fewer.
        await until(lambda: sum(client.has_answer() for client in clients) == MANY - quotas.limit("waits").per_token)
        codes = {(await client.answer())[2]["error"]["code"] for client in clients if client.has_answer()}
        assert codes == {"too_many_requests_in_flight", "too_many_waits"}
        for client in clients:
            client.hang_up()
        await until(lambda: quotas.used("requests") == 0)
        assert quotas.used("waits") == quotas.used("bytes") == 0


async def test_requests_without_a_token_take_no_place(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with on_a_port(memory_bus, lake, tmp_path, max_concurrent_requests=4) as port:
        await port.declare()
        others = await port.token("ingest:orders")
        wrong = {"authorization": "Bearer wrong"}
        clients = await _flood(port, "POST /v1/tables/orders/events", {**wrong, **NDJSON}, b"{", announced=1000)
        await until(lambda: all(client.has_answer() for client in clients))
        assert {await client.status() for client in clients} == {401}
        assert port.gateway.quotas.used("requests") == 0
        await _goes_on_for_others(port, others)
        for client in clients:
            client.hang_up()


async def test_the_reserve_of_admins(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """Four tokens take all places there are; another one is refused, an admin and health are not."""
    access = AccessSettings(token_share=0.25)
    async with on_a_port(memory_bus, lake, tmp_path, max_concurrent_requests=8, access=access) as port:
        await port.declare()
        receipt = await port.accept([event("a")])
        tokens = [await port.token("ingest:orders") for _ in range(5)]
        clients = []
        for headers in tokens[:4]:
            clients.append(await port.begin(f"GET /v1/visibility?token={receipt['token']}&wait_s=300", headers))
            clients.append(
                await port.begin("POST /v1/tables/orders/events", {**headers, **NDJSON}, b'{"id": ', announced=1000)
            )
        quotas = port.gateway.quotas
        await until(lambda: quotas.used("requests") == 8)
        refused = await port.http.get("/v1/tables", headers=tokens[4])
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await port.http.get("/v1/status")).status_code == 200
        assert (await port.http.get("/v1/health", headers={"authorization": ""})).status_code == 200
        assert (await port.http.get("/", headers={"authorization": ""})).status_code == 200
        for client in clients:
            client.hang_up()
        await until(lambda: quotas.used("requests") == 0)
        assert (await port.http.get("/v1/tables", headers=tokens[4])).status_code == 200


async def test_a_pipelined_request_is_answered_after_a_wait(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """Looking out for a caller that hangs up takes nothing of what the caller sends next."""
    async with on_a_port(memory_bus, lake, tmp_path) as port:
        await port.declare()
        headers = await port.token("ingest:orders")
        receipt = await port.accept([event("a")])
        client = await port.begin(f"GET /v1/visibility?token={receipt['token']}&wait_s=300", headers)
        await until(lambda: port.gateway.quotas.used("waits") == 1)
        body = ndjson([event("b"), event("c")])
        head = "POST /v1/tables/orders/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        head += f"Authorization: {headers['authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.writer.write(head.encode() + body)
        await asyncio.sleep(0.1)
        await commit(memory_bus, lake)
        assert (await client.answer())[2]["visible"] is True
        status, _, told = await client.answer()
        assert (status, told["accepted"]) == (202, 2)
        client.hang_up()


async def test_a_search_ends_with_its_caller(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    ended = asyncio.Event()

    class Searches:
        """One that never answers."""

        async def answer(self, *_: Any, waiting: Any, **__: Any) -> bytes:
            try:
                with waiting():
                    await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        def close(self) -> None: ...

    async with on_a_port(memory_bus, lake, tmp_path) as port:
        port.gateway.searches = Searches()  # type: ignore[assignment]
        headers = await port.token("read:*")
        client = await port.begin("POST /v1/search", headers, b'{"table": "notes", "query": "tea"}')
        await until(lambda: port.gateway.quotas.used("waits") == 1)
        client.hang_up()
        await asyncio.wait_for(ended.wait(), 30)
        await until(lambda: port.gateway.quotas.used("requests") == port.gateway.quotas.used("waits") == 0)


async def test_the_limits_are_in_the_metrics(gateway: Running) -> None:
    answer = await gateway.http.get("/metrics")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["frazil_in_flight", "requests"] == 1
    assert found["frazil_in_flight", "waits"] == found["frazil_in_flight", "bytes"] == 0
    assert found["frazil_in_flight_limit", "requests", "token"] == 64
    assert found["frazil_in_flight_limit", "all", "waits"] == 128
    assert found["frazil_in_flight_limit", "admin", "bytes"] == 1536 << 20
    assert found["frazil_quota_refusals_total", "requests", "token"] == 0


@pytest.mark.parametrize("wait", ["", "&wait_s=300"])
async def test_a_token_beyond_the_head_is_an_error_and_no_wait(gateway: Running, wait: str) -> None:
    mark = Token.parse((await gateway.accept([event("a")]))["token"]).marks["main.orders"]
    for beyond in (1 << 20, 1 << 40):
        token = str(Token.of("main.orders", mark.stream, mark.position + beyond))
        answer = await gateway.http.get(f"/v1/visibility?token={token}{wait}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "token_beyond_head")


async def test_a_token_of_another_gateway_is_honoured(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    """This gateway has not seen the write that the token names: it asks the bus before it says anything of it."""
    async with (
        on_a_port(memory_bus, lake, tmp_path / "one") as one,
        on_a_port(memory_bus, lake, tmp_path / "two") as two,
    ):
        await one.declare()
        await one.accept([event("a")])
        await two.accept([event("b")])
        for number in range(20):
            receipt = await one.accept([event(f"c{number}")])
            answer = await two.http.get("/v1/visibility", params={"token": receipt["token"], "wait_s": "0"})
            assert (answer.status_code, answer.json()["visible"]) == (200, False)
        waiting = asyncio.create_task(
            two.http.get("/v1/visibility", params={"token": receipt["token"], "wait_s": "60"})
        )
        await until(lambda: two.gateway.quotas.used("waits") == 1)
        await commit(memory_bus, lake)
        assert (await waiting).json()["visible"] is True


def _id(headers: dict[str, str]) -> str:
    return id_of(headers["authorization"].removeprefix("Bearer ")) or ""
