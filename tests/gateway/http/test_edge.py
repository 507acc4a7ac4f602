"""Hostile connections against a gateway on a port: each is ended with a code, and a neighbour never has an error."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from frazil.bus.memory import MemoryBus
from frazil.gateway.health import PartsHealth
from frazil.gateway.http.connection import GatewayConnection
from frazil.lake.catalog import Lake
from tests.gateway.http.edge_harness import BEARER, GET_HEALTH, Answer, Edge, Raw, edge, open_files, until

HEAD = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n"
PUBLISH = b"POST /v1/tables/orders/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
CHUNKED = PUBLISH + b"Transfer-Encoding: chunked\r\n"
EVENT = b'{"id": "raw", "data": {"item": "ice"}}\n'

CROWD = """
import socket, sys
port = int(sys.argv[1])
sys.stdin.readline()
opened = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(50)]
print("connected", flush=True)
sys.stdin.readline()
"""

Open = Callable[..., AbstractAsyncContextManager[Edge]]


@pytest.fixture
def opened(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def open_edge(**limits: Any) -> AsyncIterator[Edge]:
        async with edge(memory_bus, lake, tmp_path, **limits) as found:
            yield found

    return open_edge


def is_refusal(answer: Answer, status: int, code: str) -> bool:
    return (
        (answer.status, answer.code) == (status, code)
        and answer.headers["connection"] == "close"
        and answer.headers["content-type"] == "application/json"
    )


class Panic(BaseException):
    """As a library in Rust raises it: no Exception."""


async def test_a_panic_of_a_library_is_answered_in_our_form(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def panic(_: object) -> dict[str, Any]:
        raise Panic("index out of bounds")

    async with opened() as found:
        raw = await found.connect()
        monkeypatch.setattr(PartsHealth, "health", panic)
        raw.send(GET_HEALTH)
        answer = await raw.answer()
        assert (answer.status, answer.code) == (500, "internal")
        assert answer.headers["content-type"] == "application/json" and b"bounds" not in answer.body
        monkeypatch.undo()
        raw.send(GET_HEALTH)
        assert (await raw.answer()).status == 200, "the connection goes on"
        raw.close()


@pytest.mark.parametrize("block", [b"a" * 65536, b"A: " + b"a" * 60 + b"\r\n"], ids=["one header", "many headers"])
async def test_headers_have_a_size(opened: Open, block: bytes) -> None:
    """What is taken is bounded by the buffers of two sockets, not by what the client has."""
    async with opened() as found:
        raw = await found.connect()
        raw.send(HEAD + b"A: b\r\n" + (b"A: " if b":" not in block else b""))
        taken, many = 0, block * (65536 // len(block))
        with contextlib.suppress(ConnectionError, TimeoutError):
            while taken < 300 << 20:
                raw.send(many)
                await asyncio.wait_for(raw.writer.drain(), 1)
                taken += len(many)
        assert taken < 32 << 20
        assert is_refusal(await raw.answer(), 431, "headers_too_large")
        assert found.metric("frazil_http_refused_total", code="headers_too_large") == 1
        raw.close()


async def test_headers_have_a_number_and_the_address_a_length(opened: Open) -> None:
    async with opened(max_headers=20, max_url_bytes=300) as found:
        for lines, status in ((19, 200), (20, 431)):
            answer = await found.ask(HEAD + b"A: b\r\n" * lines + b"\r\n")
            assert answer.status == status
        for path, status, code in ((b"a" * 290, 404, "no_such_route"), (b"a" * 300, 414, "url_too_long")):
            asked = b"GET /" + path + b" HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n"
            answer = await found.ask(asked)
            assert (answer.status, answer.code) == (status, code)
        query = b"GET /v1/health?" + b"a=b&" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        assert is_refusal(await found.ask(query), 414, "url_too_long")


async def test_headers_have_a_time(opened: Open) -> None:
    """A byte now and then does not help, neither on a new connection nor on one that was answered."""
    async with opened(header_seconds=2) as found:
        fresh, answered, silent = [await found.connect() for _ in range(3)]
        answered.send(GET_HEALTH)
        assert (await answered.answer()).status == 200
        for raw in (fresh, answered):
            raw.send(HEAD + b"A: ")

        async def trickle(raw: Raw) -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    raw.send(b"a")
                    await asyncio.sleep(0.05)

        trickling = [asyncio.create_task(trickle(raw)) for raw in (fresh, answered)]
        for raw in (fresh, answered):
            assert is_refusal(await raw.answer(), 408, "headers_timeout")
        assert await silent.rest() == b"", "nothing was asked, nothing is answered"
        for task in trickling:
            task.cancel()
        for raw in (fresh, answered, silent):
            raw.close()


async def test_a_gateway_that_was_held_up_blames_nobody(opened: Open) -> None:
    async with opened(header_seconds=2, body_seconds=2) as found, found.neighbour.turn:
        head, body = await found.connect(), await found.connect()
        head.send(HEAD)
        body.send(PUBLISH + BEARER + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT[:10])
        await asyncio.sleep(0.3)
        time.sleep(4)
        head.send(b"\r\n")
        body.send(EVENT[10:])
        assert [(await raw.answer()).status for raw in (head, body)] == [200, 202]
        for raw in (head, body):
            raw.close()


async def test_a_check_that_fails_ends_its_connection_only(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(header_seconds=2) as found:
        check = GatewayConnection._check_head

        def fails_for_some(connection: GatewayConnection, now: float) -> None:
            if connection.client is not None and connection.client[0] == "127.0.0.9":
                raise RuntimeError("a fault of the check")
            check(connection, now)

        monkeypatch.setattr(GatewayConnection, "_check_head", fails_for_some)
        strange, slow = await found.connect(source="127.0.0.9"), await found.connect()
        slow.send(HEAD)
        assert await strange.rest() == b""
        assert is_refusal(await slow.answer(), 408, "headers_timeout")
        for raw in (strange, slow):
            raw.close()


async def test_idle_connections_are_closed(opened: Open) -> None:
    async with opened(keep_alive_seconds=2, header_seconds=20) as found:
        raw = await found.connect()
        raw.send(GET_HEALTH)
        assert (await raw.answer()).status == 200
        assert await raw.rest() == b""
        raw.close()


async def test_half_open_connections_shut_nobody_out(opened: Open) -> None:
    """Many more than there is room for: the oldest go, told why, and new requests are served all the while."""
    async with opened(max_connections=40, max_connections_per_address=30) as found:
        crowd = []
        for _ in range(200):
            crowd.append(await found.connect())
            crowd[-1].send(HEAD + b"A: ")
        await found.neighbour.answered_again(10)
        assert found.connections() <= 31
        assert is_refusal(await crowd[0].answer(), 503, "too_many_connections")
        assert await crowd[-1].is_open()
        for raw in crowd:
            raw.close()


async def test_one_address_does_not_take_the_places_of_others(opened: Open) -> None:
    """The address with the most connections gives way; who has a token and asked lately keeps the connection."""
    async with opened(max_connections=40, max_connections_per_address=25, header_seconds=60) as found:
        kept, unknown = await found.connect(source="127.0.0.3"), await found.connect(source="127.0.0.3")
        kept.send(HEAD + BEARER + b"\r\n")
        kept.send(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n")
        assert [(await kept.answer()).status for _ in range(2)] == [200, 200]
        unknown.send(GET_HEALTH)
        assert (await unknown.answer()).status == 200
        greedy = [await found.connect(source="127.0.0.2") for _ in range(60)]
        others = [await found.connect(source="127.0.0.4") for _ in range(20)]
        await found.neighbour.answered_again()
        assert found.connections() <= 42
        assert await kept.is_open() and await unknown.is_open()
        left = [sum(await asyncio.gather(*(raw.is_open() for raw in crowd))) for crowd in (greedy, others)]
        assert left[0] < 25 and left[1] >= 15, left
        for raw in (kept, unknown):
            raw.send(HEAD + b"\r\n")
            assert (await raw.answer()).status == 200
        for raw in (kept, unknown, *greedy, *others):
            raw.close()


async def test_a_newcomer_that_is_far_away_is_served_during_a_flood(opened: Open) -> None:
    """It needs a moment between its connection and its first bytes: newer connections do not cost it its place."""
    async with opened(max_connections=60, max_connections_per_address=48) as found:
        crowd = [await found.connect() for _ in range(48)]
        far = await found.connect()
        for _ in range(30):
            crowd.append(await found.connect())
        far.send(GET_HEALTH)
        assert (await far.answer()).status == 200
        for raw in (far, *crowd):
            raw.close()


async def test_refused_connections_do_not_keep_their_places(opened: Open) -> None:
    """Each lingers for seconds so that its client can read the answer; a newcomer is worth more."""
    async with opened(max_connections=40, max_connections_per_address=30) as found:
        crowd = []
        for _ in range(100):
            crowd.append(await found.connect())
            crowd[-1].send(b"nonsense\r\n\r\n")
        await found.neighbour.answered_again(10)
        for raw in crowd:
            raw.close()


@pytest.mark.parametrize("first", [b"", b"x" * 30_000], ids=["from the start", "after a burst"])
async def test_a_body_of_a_few_bytes_a_second(opened: Open, first: bytes) -> None:
    """It is ended after `body_seconds`: the route waits for 15 s without a byte, and 120 s in all."""
    async with opened(body_seconds=2) as found:
        raw = await found.connect()
        raw.send(PUBLISH + BEARER + b"Content-Length: 100000\r\n\r\n" + first)

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    raw.send(b"x")
                    await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert is_refusal(await raw.answer(), 408, "body_timeout")
        trickling.cancel()
        raw.close()


async def test_a_body_that_waits_for_100_continue_is_not_slow(opened: Open) -> None:
    async with opened(body_seconds=5) as found:
        raw = await found.connect()
        raw.send(PUBLISH + BEARER + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(EVENT))
        assert (await raw.answer()).status == 100
        raw.send(EVENT)
        assert (await raw.answer()).status == 202
        raw.close()


async def test_an_answer_that_nobody_reads(opened: Open) -> None:
    """The connection is cut, the answer forgotten; a client that reads steadily gets all of the same answer."""
    async with opened(answer_seconds=2, min_bytes_per_second="256KB") as found:
        for _ in range(8):
            found.gateway.journal.append("large", text="x" * (4 << 20))
        question = b"GET /v1/journal?kind=large HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n"
        deaf = [await found.connect(receive_bytes=4096) for _ in range(3)]
        for raw in deaf:
            raw.send(question)
        in_flight = "frazil_http_requests_in_flight"
        await until(lambda: found.metric(in_flight) >= 3)
        await until(lambda: found.metric("frazil_http_refused_total", code="answer_timeout") == 3)
        steady = await found.connect()
        steady.send(question)
        assert len((await steady.answer()).body) > 32 << 20
        for raw in (*deaf, steady):
            raw.close()


async def test_an_answer_before_the_body_ends_the_connection(opened: Open) -> None:
    """The client may finish sending and go on; one that does not is closed."""
    async with opened(header_seconds=60, body_seconds=60) as found:
        polite, endless = [await found.connect() for _ in range(2)]
        polite.send(PUBLISH + b"Content-Length: 100000\r\n\r\n")
        endless.send(PUBLISH + b"Content-Length: 100000\r\n\r\n")
        for raw in (polite, endless):
            answer = await raw.answer()
            assert (answer.status, answer.code) == (401, "unauthorized")
        polite.send(b"x" * 100_000 + GET_HEALTH)
        assert (await polite.answer()).status == 200
        assert await endless.rest() == b""
        for raw in (polite, endless):
            raw.close()


REFUSED_FORMS = {
    "two lengths": PUBLISH + b"Content-Length: 39\r\nContent-Length: 39\r\n\r\n" + EVENT,
    "two lengths that differ": PUBLISH + b"Content-Length: 39\r\nContent-Length: 3\r\n\r\n" + EVENT,
    "a list of lengths": PUBLISH + b"Content-Length: 39, 39\r\n\r\n" + EVENT,
    "length and chunked": CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "chunked and length": PUBLISH + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and identity": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "gzip and chunked": PUBLISH + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "unknown encoding": PUBLISH + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": PUBLISH + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n0\r\n\r\n",
    "length with a sign": PUBLISH + b"Content-Length: +5\r\n\r\nabcde",
    "length in hexadecimal": PUBLISH + b"Content-Length: 0x5\r\n\r\nabcde",
    "length beyond 2^64": PUBLISH + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\n",
    "bare LF": b"GET /v1/health HTTP/1.1\nHost: x\n\n",
    "bare LF in a header": b"GET /v1/health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare CR": HEAD + b"A: b\rC: d\r\n\r\n",
    "folded header": HEAD + b"A: b\r\n c\r\n\r\n",
    "space before a header": b"GET /v1/health HTTP/1.1\r\n Host: x\r\n\r\n",
    "chunk beyond 2^64": CHUNKED + b"\r\n10000000000000002\r\nab\r\n0\r\n\r\n",
    "chunk with a sign": CHUNKED + b"\r\n-1\r\nab\r\n0\r\n\r\n",
    "chunk with 0x": CHUNKED + b"\r\n0x2\r\nab\r\n0\r\n\r\n",
    "chunk with a bare LF": CHUNKED + b"\r\n2\nab\r\n0\r\n\r\n",
    "HTTP/2.0": b"GET /v1/health HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/1.9": b"GET /v1/health HTTP/1.9\r\nHost: x\r\n\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "invalid method": b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown method": b"FROB / HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    "two hosts": HEAD + b"Host: y\r\n\r\n",
    "NUL in the path": b"GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n",
    "non-ASCII path": b"GET /\xc3\xa4\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL in a header": HEAD + b"A: b\0c\r\n\r\n",
    "non-ASCII header name": HEAD + b"\xc3\xa4: b\r\n\r\n",
}


async def test_what_two_programs_may_read_in_two_ways_is_refused(opened: Open) -> None:
    """One answer in JSON, then the end: what follows is not taken for another request."""
    async with opened() as found:
        for name, form in REFUSED_FORMS.items():
            raw = await found.connect()
            raw.send(form + GET_HEALTH)
            answer = await raw.answer()
            if answer.status == 401:  # the head was in order; its body is found out later
                assert b"HTTP/1.1 200" not in await raw.rest(), name
            else:
                assert is_refusal(answer, 400, "bad_request"), (name, answer)
                assert await raw.rest() == b"", name
            raw.close()


async def test_a_broken_body_of_a_caller_with_a_token(opened: Open) -> None:
    """The route waits for the body: the caller hears of the framing, and nothing of it is published."""
    async with opened() as found:
        for broken in (b"zz\r\nab\r\n", b"2\r\nabc\r\n", b"2\nab\r\n"):
            answer = await found.ask(CHUNKED + BEARER + b"\r\n27\r\n" + EVENT + b"\r\n" + broken)
            assert is_refusal(answer, 400, "bad_request")
        framing = b"2;a=" + b"b" * 200_000 + b"\r\nab\r\n"
        assert is_refusal(await found.ask(CHUNKED + BEARER + b"\r\n" + framing), 400, "bad_request")
        trailers = b"0\r\n" + (b"A: " + b"b" * 1000 + b"\r\n") * 200
        refused = await found.ask(CHUNKED + BEARER + b"\r\n27\r\n" + EVENT + b"\r\n" + trailers)
        assert is_refusal(refused, 431, "headers_too_large")


async def test_what_is_unusual_and_allowed(opened: Open) -> None:
    async with opened() as found:
        chunks = b"".join(b"1\r\n%c\r\n" % letter for letter in EVENT)
        published = await found.ask(CHUNKED + BEARER + b"\r\n" + chunks + b"0\r\nA: trailer\r\n\r\n")
        assert published.status == 202
        old = await found.ask(b"GET /v1/health HTTP/1.0\r\n\r\n")
        assert (old.status, old.headers["connection"]) == (200, "close")
        assert (await found.ask(b"\r\n\r\n" + GET_HEALTH)).status == 200
        assert (await found.ask(HEAD + b"A: \xff\xfe\r\n\r\n")).status == 200
        for path in (b"/v1/tables/%00", b"/v1/tables/%ff%fe", b"/v1/tables/..%2f..%2f", b"//", b"*"):
            answer = await found.ask(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + BEARER + b"\r\n")
            assert 400 <= answer.status < 500 and answer.code, path


async def test_two_tokens_are_none(opened: Open) -> None:
    """Neither the first nor the last counts: a proxy may have checked the other one."""
    async with opened() as found:
        status = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n"
        wrong = b"Authorization: Bearer frz_wrong\r\n"
        for pair in (BEARER + wrong, wrong + BEARER, BEARER + BEARER):
            answer = await found.ask(status + pair + b"\r\n")
            assert (answer.status, answer.code) == (400, "two_authorizations")
        late = CHUNKED + b"\r\n27\r\n" + EVENT + b"\r\n0\r\n" + BEARER + b"\r\n"
        assert (await found.ask(late)).status == 401
        assert (await found.ask(status + BEARER + b"\r\n")).status == 200


async def test_pipelining_has_a_depth(opened: Open) -> None:
    async with opened() as found:
        few, many = await found.connect(), await found.connect()
        few.send(GET_HEALTH * 10)
        assert [(await few.answer()).status for _ in range(10)] == [200] * 10
        many.send(GET_HEALTH * 10_000)
        answers = (await many.rest()).split(b"HTTP/1.1 ")[1:]
        assert all(answer.startswith(b"200") for answer in answers)
        assert 1 <= len(answers) <= 17
        assert b"connection: close" in answers[-1]
        for raw in (few, many):
            raw.close()


@pytest.mark.parametrize("second", [b"nonsense\r\n\r\n", CHUNKED + b"\r\nzz\r\n", HEAD + b"A: b\r\n" * 200 + b"\r\n"])
async def test_an_error_does_not_answer_the_request_before_it(opened: Open, second: bytes) -> None:
    async with opened() as found:
        raw = await found.connect()
        target = b"POST /v1/tables/orders/events?wait=visible&timeout_s=1 HTTP/1.1\r\nHost: x\r\n"
        head = target + b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n" % len(EVENT)
        raw.send(head + BEARER + b"\r\n" + EVENT + second)
        answer = await raw.answer()
        assert (answer.status, answer.code) == (504, "visibility_timeout")
        assert answer.headers["connection"] == "close"
        assert await raw.rest() == b""
        raw.close()


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"TLS/1.0"])
async def test_an_upgrade_is_answered_as_the_request_that_it_is(opened: Open, protocol: bytes) -> None:
    async with opened() as found:
        raw = await found.connect()
        raw.send(HEAD + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n" + GET_HEALTH * 3)
        answer = await raw.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await raw.rest() == b""
        raw.close()


async def work_of_a_second(raw: Raw) -> float:
    """Processor time of a second with a few requests in it."""
    used = time.process_time()
    for _ in range(20):
        raw.send(GET_HEALTH)
        assert (await raw.answer()).status == 200
        await asyncio.sleep(0.05)
    return time.process_time() - used


async def test_no_more_open_files(opened: Open) -> None:
    """Files run out for another reason than connections: those who are connected are served, later others again."""
    async with opened() as found, found.neighbour.turn:
        kept = await found.connect()
        quiet = await work_of_a_second(kept)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CROWD, str(found.port), stdin=PIPE, stdout=PIPE
        )
        assert crowd.stdin is not None and crowd.stdout is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files(), hard))
        try:
            crowd.stdin.write(b"go\n")
            assert await crowd.stdout.readline() == b"connected\n"
            assert await work_of_a_second(kept) < 4 * quiet, "the loop does not spin"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await found.ask(GET_HEALTH)).status == 200
        await crowd.communicate(b"done\n")
        kept.close()
