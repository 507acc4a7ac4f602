"""The door: tokens, errors in one shape, limits on bodies and on requests at once."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ByteSize

from frazil.access import AccessSettings
from frazil.bus.memory import MemoryBus
from frazil.errors import InvalidInput
from frazil.gateway.http.bodies import BodyReader
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import NDJSON, TOKEN, Running, event, ndjson, running


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xff"]
)
@pytest.mark.parametrize("path", ["/v1/tables", "/v1/status", "/metrics", "/v1/journal", "/v1/nothing"])
async def test_no_token_or_a_wrong_one(gateway: Running, authorization: str | None, path: str) -> None:
    del gateway.http.headers["authorization"]
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    answer = await gateway.http.get(path, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/", "/v1/health"])
async def test_what_needs_no_token(gateway: Running, path: str) -> None:
    del gateway.http.headers["authorization"]
    assert (await gateway.http.get(path)).status_code == 200


async def test_an_unknown_address_and_a_wrong_method(gateway: Running) -> None:
    answer = await gateway.http.get("/v2/tables")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_route")
    answer = await gateway.http.put("/v1/tables")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    answer = await gateway.http.get("/v1/tables?drooped=true")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unknown_parameter")


async def test_the_unexpected_leaks_nothing_but_its_number(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[object]:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr(gateway.gateway.directory, "tables", broken)
    with caplog.at_level(logging.ERROR):
        answer = await gateway.http.get("/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.json()["error"]["details"]["incident"] in caplog.text
    assert "RuntimeError: the inner secret" in caplog.text, "with its traceback"
    monkeypatch.undo()
    assert (
        'frazil_http_requests_total{route="/v1/status",status="500"} 1.0' in (await gateway.http.get("/metrics")).text
    )


async def test_an_error_about_what_is_no_text_is_told(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[object]:
        raise InvalidInput("no column '\ud800'", code="bad_column", hint="\udfff", details={"column": "\ud800"})

    monkeypatch.setattr(gateway.gateway.directory, "tables", refuse)
    answer = await gateway.http.get("/v1/tables")
    assert answer.status_code == 422
    assert answer.json() == {"error": {"code": "bad_column", "message": "no column '\\ud800'", "hint": "\\udfff"}}


@pytest.mark.parametrize("limit", ["9" * 5_000, "0" * 19 + "1" + "9" * 30, "0" * 19 + "1" + "9" * 5_000, "-1", "1e400"])
async def test_a_number_of_thousands_of_digits(gateway: Running, limit: str) -> None:
    answer = await gateway.http.get("/v1/tables/orders/history", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_parameter")


async def test_a_body_above_the_limit(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with running(memory_bus, lake, tmp_path, max_body_bytes=2000) as gateway:
        await gateway.declare()
        events = ndjson(event(str(number)) for number in range(100))

        async def announced_as_nothing() -> AsyncIterator[bytes]:
            for at in range(0, len(events), 100):
                yield events[at : at + 100]

        for content in (events, announced_as_nothing()):
            answer = await gateway.http.post("/v1/tables/orders/events", content=content, headers=NDJSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("settings", "sent", "code"),
    [
        ({"max_events": 2}, [event("a"), event("b"), event("c")], "too_many_events"),
        ({"max_event_bytes": 200}, [event("a", item="x" * 300)], "event_too_large"),
        ({"max_depth": 4}, [{"id": "a", "data": {"item": [[[[[1]]]]]}}], "too_deep"),
        ({"max_fields": 2}, [{"id": "a", "data": {"item": "x", "b": 1, "c": 2}}], "too_many_fields"),
    ],
)
async def test_each_limit_has_its_own_code(
    memory_bus: MemoryBus,
    lake: Lake,
    tmp_path: Path,
    settings: dict[str, Any],
    sent: list[dict[str, object]],
    code: str,
) -> None:
    async with running(memory_bus, lake, tmp_path, **settings) as gateway:
        await gateway.declare()
        answer = await gateway.send(sent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, code)
        assert answer.json()["error"]["hint"]


async def test_bad_events_are_named_each(gateway: Running) -> None:
    answer = await gateway.send([event("a"), {"id": "b", "data": {"amount": "many"}}, {"id": "c", "data": {"x": 1}}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_events")
    assert [detail["index"] for detail in answer.json()["error"]["details"]] == [1, 2]
    assert (await gateway.accept([event("a")]))["accepted"] == 1, "nothing of it was kept"


async def test_bodies_that_are_nothing(gateway: Running) -> None:
    for content, kind, code in [
        (b"", "application/json", 422),
        (b"{", "application/json", 422),
        (b'{"events": []}', "application/json", 422),
        (b"", "application/x-ndjson", 422),
        (b"a=b", "application/x-www-form-urlencoded", 415),
        (b"junk", "application/vnd.apache.arrow.stream", 422),
    ]:
        answer = await gateway.http.post("/v1/tables/orders/events", content=content, headers={"content-type": kind})
        assert answer.status_code == code, (content, answer.text)
        assert answer.json()["error"]["message"]


async def test_packed_bodies(gateway: Running) -> None:
    for encoding in ("gzip", "zstd"):
        headers = {**NDJSON, "content-encoding": encoding}
        packed: bytes = pa.Codec(encoding).compress(ndjson([event(f"from {encoding}")]), asbytes=True)
        answer = await gateway.http.post("/v1/tables/orders/events", content=packed, headers=headers)
        assert answer.status_code == 202, answer.text
        for broken in (packed[:-4], b"junk" * 10):
            answer = await gateway.http.post("/v1/tables/orders/events", content=broken, headers=headers)
            assert answer.status_code == 422, (encoding, answer.text)
    answer = await gateway.http.post(
        "/v1/tables/orders/events", content=b"x", headers={**NDJSON, "content-encoding": "br"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_encoding")


async def test_a_bomb_stops_at_the_limit(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with running(memory_bus, lake, tmp_path, max_body_bytes=1 << 20) as gateway:
        await gateway.declare()
        bomb = gzip.compress(b" " * (64 << 20))
        assert len(bomb) < 1 << 20
        headers = {**NDJSON, "content-encoding": "gzip"}
        answer = await gateway.http.post("/v1/tables/orders/events", content=bomb, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


async def test_bodies_together_stay_below_a_limit(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    access = AccessSettings(token_memory=ByteSize(1 << 20))
    async with running(memory_bus, lake, tmp_path, access=access) as gateway:
        await gateway.declare()
        sender = await gateway.token("ingest:orders")
        url = "/v1/tables/orders/events"
        for _ in range(3):
            large = {"events": [event("a", item="x" * 600_000)]}
            answer = await gateway.http.post(url, json=large, headers=sender)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
            assert "token_memory" in answer.json()["error"]["hint"]
        small = await gateway.http.post(url, json={"events": [event("b")]}, headers=sender)
        assert small.status_code == 202, "the room was given back"
        assert gateway.gateway.quotas.used("bytes") == 0


async def test_a_body_that_does_not_come(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b'{"id": '
        await asyncio.sleep(30)
        yield b'"a"}'

    async with running(memory_bus, lake, tmp_path) as patient:
        await patient.declare()
    for bodies in (BodyReader(idle_seconds=0.05), BodyReader(total_seconds=0.05)):
        async with running(memory_bus, lake, tmp_path, bodies=bodies) as gateway:
            answer = await gateway.http.post("/v1/tables/orders/events", content=never(), headers=NDJSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (408, "body_timeout")
