"""Fuzzing of the API: one valid example for each route, mutations of it, and what every answer must be.

Requests go straight to the ASGI application, with scopes as uvicorn makes them, so that an exception that leaves the
application is seen as one.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import logging
import random
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_from_bytes, unquote, urlencode

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message

PATIENCE_SECONDS = 60.0
JSON = "application/json"
UNIQUE = "0unique0"
"""Stands in a body for another text each time, as the id of an event must be."""
_numbers = itertools.count()
# Answers 503 and 504 that are promised. Everything else above 499 is a fault.
MAY_FAIL = {
    "body_timeout",
    "busy",
    "cut_moved",
    "no_generation",
    "no_uploads",
    "overloaded",
    "pipeline_unavailable",
    "query_timeout",
    "tail_too_long",
    "unavailable",
    "visibility_timeout",
    "warming",
    "worker_lost",
}


@dataclass(frozen=True)
class Example:
    """A request that is right."""

    params: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    """Sent as JSON; bytes are sent as they are."""
    answers: str = "ok"
    """`ok`, or the code of the error that the place of this test leads to."""
    content_type: str = JSON


@dataclass(frozen=True)
class Sent:
    method: str
    path: bytes
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def __str__(self) -> str:
        query = b"?" + self.query[:200] if self.query else b""
        return f"{self.method} {self.path[:200]!r}{query!r} {dict(self.headers)} {self.body[:300]!r}"


@dataclass(frozen=True)
class Got:
    status: int
    headers: Mapping[str, str]
    body: bytes
    route: str | None = None
    """The path of the route that answered, as it was declared; None where none was found."""

    @property
    def code(self) -> str:
        return "ok" if self.status < 400 else str(json.loads(self.body)["error"]["code"])


def routes_of(app: Any) -> list[tuple[str, str]]:
    """Method and path of every route of an application, whatever it is wrapped in."""
    while not isinstance(app, Router):
        app = next(inner for name in ("_app", "app") if (inner := getattr(app, name, None)) is not None)
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes), "something that is no plain route needs a test of its own"
    return [(method, route.path) for route in routes for method in sorted((route.methods or set()) - {"HEAD"})]


async def call(app: ASGIApp, sent: Sent) -> Got:
    """The answer; what the application raises is raised here."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 7373),
        "client": ("127.0.0.1", 50_000),
        "scheme": "http",
        "method": sent.method,
        "root_path": "",
        "path": unquote(sent.path.decode("ascii")),
        "raw_path": sent.path,
        "query_string": sent.query,
        "headers": list(sent.headers),
        "state": {},
    }
    given, ended = False, asyncio.Event()
    messages: list[Message] = []

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": sent.body, "more_body": False}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await app(scope, receive, send)
    ended.set()
    start, *rest = messages
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    route: Any = scope.get("route")
    return Got(start["status"], headers, b"".join(part.get("body", b"") for part in rest), getattr(route, "path", None))


def request_of(method: str, path: str, example: Example, token: str | None) -> Sent:
    """The request of an example."""
    raw = path
    for name, value in example.params.items():
        raw = re.sub(rf"\{{{name}(:path)?\}}", quote(value, safe=""), raw)
    body = example.body if isinstance(example.body, bytes) else b""
    if example.body is not None and not isinstance(example.body, bytes):
        body = json.dumps(example.body).encode()
    body = body.replace(UNIQUE.encode(), b"%d" % next(_numbers))
    headers = [(b"host", b"gateway")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    if body:
        headers += [(b"content-type", example.content_type.encode()), (b"content-length", str(len(body)).encode())]
    return Sent(method, raw.encode(), urlencode(example.query).encode(), tuple(headers), body)


_DIGITS = "9" * 5_000
ODD_TEXTS = (
    "", " ", "\0", "a\0b", "\u202e", "é", "\U0001f9ca", "\ufeff", "'; DROP TABLE t; --", '"', "\\",
    "../../etc/passwd",
    "%2e%2e%2f", "a/b", "*", "main.*", "system.audit", "nobody", "x" * 300, "x" * 20_000, _DIGITS, "-" + _DIGITS,
    "0" * 20 + "1", "0" * 19 + "1" + "9" * 30, "1e400", "-1e400", "nan", "inf", "-Infinity", "1e-400", "0x10", "१२",
    "²",
    "1_000", "+5", "0001-01-01", "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+14:00", "10000-01-01",
    "2026-11-03T09:30:00Z", "true", "null", "{}", "[]", "hash(people)", "fzt1.", "fzt1.eyJ9", "1" + "0" * 4_299,
    "1." + "9" * 5_000, "1E" + _DIGITS, "SELECT", "_seq", "_id", "main.", ".", "..", "a.b.c", "embeddings",
    "orders__history",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**40, 10**400, -(10**400), 0.5, -0.0, 1e308,
    5e-324,
    [], {}, [[]], [{}], [None], {"": None}, {"a": {"b": {"c": {}}}}, [1] * 2_000, {f"k{n}": n for n in range(300)},
    ["a", 1, None, {}], {"type": "string"}, [10**400], [1e308, -1e308],
)  # fmt: skip
ODD_BODIES = (
    b"", b"null", b"7", b'"text"', b"[]", b"{}", b"{", b'{"a": 1', b"\xff\xfe", b'{"a": "\xed\xa0\x80"}',
    b'"\\ud800"',
    b'{"a": "\\udc00"}', b"NaN", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e400}', b'{"a": ' + b"9" * 5_000 + b"}",
    b'{"a": 1, "a": 2}', b"[" * 5_000 + b"]" * 5_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b"\0" * 64,
    b"PK\x03\x04",
    gzip.compress(b"{}"), b"\x1f\x8b\x08\x00", b"\n\n\n", b'{"events": {}}\n{"events": []}',
)  # fmt: skip
ODD_PATHS = (
    b"%00", b"%ff%fe", b"%ed%a0%80", b"%2f", b"%2F..%2f", b"..", b".", b"%20", b"a%0ab", b"%25", b"%", b"%zz",
    b"x" * 9_000,
    b"main.orders", b"MAIN.ORDERS", b"system.audit", b"orders__history", b"main.", b"a.b.c", b"%F0%9F%A7%8A", b"*",
    b"9" * 5_000,
)  # fmt: skip
ODD_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/html"), (b"content-type", b"\xff"), (b"content-type", b"application/x-ndjson"),
    (b"content-type", b"application/vnd.apache.arrow.stream"), (b"content-type", b"multipart/form-data; boundary=a"),
    (b"content-type", b"application/json; charset=utf-16"), (b"content-encoding", b"gzip"), (b"content-encoding",
    b"br"),
    (b"content-encoding", b"\xff, gzip"), (b"content-length", b"9" * 5_000), (b"content-length", b"-1"),
    (b"content-length", b"\xb2"), (b"transfer-encoding", b"chunked"), (b"accept", b"image/png"),
    (b"accept", b"text/csv;q=9e999, */*"), (b"accept", b"\xff\xff"), (b"authorization", b"Basic \xff"),
    (b"authorization", b"Bearer " + b"x" * 9_000), (b"authorization", b"Bearer frz_\xff"), (b"authorization", b""),
)  # fmt: skip
WORST_TEXTS = (_DIGITS, "0" * 19 + "1" + _DIGITS, "1e400", "nan", "a\0b", "x" * 20_000)
WORST_VALUES: tuple[Any, ...] = (10**400, -(10**400), [], {}, [[]], True, None)
# What no value of Python becomes when it is written as JSON.
WORST_RAW = (
    b"9" * 5_000, b"-" + b"9" * 5_000, b"1." + b"9" * 5_000, b"1e400", b"-1e99999999999", b"1e-99999", b"NaN",
    b"Infinity",
    b'"\\ud800"', b'"a\\udc00\\ud800"', b'"\xff"', b"[" * 2_000 + b"]" * 2_000,
    b'{"a":' * 1_500 + b"1" + b"}" * 1_500,
    b"-0", b"1E400", b"{\"a\": 1, \"a\": 2}",
)  # fmt: skip
ODD_SQL = (
    f"SELECT {_DIGITS}", f"SELECT CAST('{_DIGITS}' AS BIGINT)", f"SELECT * FROM orders LIMIT {_DIGITS}",
    "SELECT 1e400",
    f"SELECT * FROM orders AT (VERSION => {_DIGITS})", "SELECT * FROM orders AT (TIMESTAMP => '99999-01-01')",
    "SELECT * FROM orders FOR TIMESTAMP AS OF '0001-01-01T00:00:00+14:00'", "SELECT * FROM orders AT (VERSION => -1)",
    "SELECT * FROM orders FOR VERSION AS OF 9223372036854775807", f"SELECT repeat('x', {10**12})",
    "SELECT '\U0010ffff'",
    "SELECT DATE '0001-01-01' - INTERVAL 10000000 YEAR", "SELECT TIMESTAMP '290000-01-01 00:00:00'",
    "SELECT 'inf'::DATE",
    "SELECT 'infinity'::TIMESTAMPTZ, 'nan'::DOUBLE, '-inf'::FLOAT", "SELECT " + "(" * 900 + "1" + ")" * 900,
    "SELECT " + "+".join(["1"] * 5_000), "SELECT $1, $2, $x", "SELECT", ";", "/*", "'", "SELECT 1; SELECT 2",
    "DROP TABLE orders",
    "SELECT make_date(10000000, 1, 1)", "SELECT chr(0) || 'a'", "SELECT unhex('ff')::VARCHAR", "SELECT 1 AS \"a\0b\"",
    "SELECT epoch_us('infinity'::TIMESTAMP)", "SELECT range(1000000000000)",
    "SELECT 170141183460469231731687303715884105727::HUGEINT",
    "SELECT MAP {1: 2}, {'a': NULL}, [NULL], 'x'::BLOB, INTERVAL '1' MONTH, TIME '24:00:00'",
    "SELECT uuid(), bit('1010')",
    f"count > {_DIGITS}", f"year > {_DIGITS}", "count = 1e400", "item = chr(0)", "1=1; --",
    "year > 1 OR body = unhex('ff')",
)  # fmt: skip
_OF_SQL = ("sql", "filter", "where")
_MARK = "0mark0"
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get")


class Mutator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def each_part(self, method: str, path: str, example: Example, token: str | None, count: int) -> Iterator[Sent]:
        """For each part of the example, requests with another value in its place: the worst ones and `count` others."""
        for name in example.params:
            for text in (*WORST_TEXTS, *self._some(ODD_TEXTS, count)):
                yield request_of(method, path, replace(example, params={**example.params, name: text}), token)
        for at, (name, _) in enumerate(example.query):
            for text in (*WORST_TEXTS, *self._some(ODD_TEXTS, count)):
                query = (*example.query[:at], (name, text), *example.query[at + 1 :])
                yield request_of(method, path, replace(example, query=query), token)
        if example.body is None or isinstance(example.body, bytes):
            return
        for place in _places(example.body):
            some = (*self._some(ODD_TEXTS, count), *self._some(ODD_VALUES, count))
            for odd in (*WORST_TEXTS, *WORST_VALUES, *some, *(ODD_SQL if place[-1] in _OF_SQL else ())):
                yield request_of(method, path, replace(example, body=_with(example.body, place, odd)), token)
            marked = request_of(method, path, replace(example, body=_with(example.body, place, _MARK)), token)
            for raw in self._some(WORST_RAW, 3 + count):
                yield replace(marked, body=marked.body.replace(b'"' + _MARK.encode() + b'"', raw))

    def mutants(self, method: str, path: str, example: Example, token: str | None, count: int) -> Iterator[Sent]:
        """Requests like the example, each wrong in a way or two."""
        for _ in range(count):
            sent = self._mutant(method, path, example, token)
            yield sent if self._random.random() > 0.1 else self._edge(sent)

    def _mutant(self, method: str, path: str, example: Example, token: str | None) -> Sent:
        choices = ["header"] + ["query"] * 2 + ["path"] * (1 if example.params else 0)
        if example.body is not None:
            choices += ["value"] * 8 + ["bytes", "body"]
        match self._random.choice(choices):
            case "value" if not isinstance(example.body, bytes):
                return request_of(method, path, replace(example, body=self.changed(example.body)), token)
            case "query":
                query = self._query(example)
                return replace(request_of(method, path, example, token), query=query)
            case "path":
                return self._path(method, path, example, token)
            case "header":
                sent = request_of(method, path, example, token)
                name, value = self._random.choice(ODD_HEADERS)
                return replace(sent, headers=(*[one for one in sent.headers if one[0] != name], (name, value)))
            case "body":
                return replace(request_of(method, path, example, token), body=self._random.choice(ODD_BODIES))
        sent = request_of(method, path, example, token)
        return replace(sent, body=self._garbled(sent.body))

    def changed(self, value: Any) -> Any:
        """The value with one of its parts replaced, taken away or added to."""
        if self._random.random() < (0.15 if isinstance(value, dict | list) and value else 1.0):
            return self._odd()
        if isinstance(value, list):
            at = self._random.randrange(len(value))
            return [self.changed(one) if number == at else one for number, one in enumerate(value)]
        changed = dict(value)
        name = self._random.choice(list(changed))
        match self._random.randrange(8):
            case 0:
                del changed[name]
            case 1:
                changed[self._random.choice(ODD_TEXTS)] = self._odd()
            case 2:
                changed[self._random.choice(ODD_TEXTS)] = changed.pop(name)
            case _:
                changed[name] = self.changed(changed[name])
        return changed

    def _some(self, values: Sequence[Any], count: int) -> list[Any]:
        return self._random.sample(values, min(count, len(values)))

    def _odd(self) -> Any:
        return self._random.choice(ODD_TEXTS if self._random.random() < 0.5 else ODD_VALUES)

    def _garbled(self, body: bytes) -> bytes:
        if not body:
            return self._random.choice(ODD_BODIES)
        at = self._random.randrange(len(body))
        match self._random.randrange(4):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + self._random.randbytes(3) + body[at:]
            case 2:
                return body[:at] + bytes([body[at] ^ 1 << self._random.randrange(8)]) + body[at + 1 :]
        return body + body[at:]

    def _query(self, example: Example) -> bytes:
        pairs = list(example.query)
        raw = b""
        match self._random.randrange(4):
            case 0:
                pairs.append((self._random.choice(ODD_TEXTS), "1"))
            case 1 if pairs:
                pairs.append((self._random.choice(pairs)[0], self._random.choice(ODD_TEXTS)))
            case 2:
                raw = b"&" + self._random.choice(
                    (b"%ff=%fe", b"=", b"&&&", b"a", b"%00", b"%ed%a0%80=1", b";", b"a=b=c")
                )
            case _ if pairs:
                at = self._random.randrange(len(pairs))
                pairs[at] = (pairs[at][0], self._random.choice(ODD_TEXTS))
        return urlencode(pairs).encode() + raw

    def _path(self, method: str, path: str, example: Example, token: str | None) -> Sent:
        name = self._random.choice(list(example.params))
        sent = request_of(method, path, replace(example, params={**example.params, name: _MARK}), token)
        odd = self._random.choice(ODD_PATHS)
        if self._random.random() < 0.5:
            odd = quote_from_bytes(self._random.choice(ODD_TEXTS).encode(), safe="").encode()
        return replace(sent, path=sent.path.replace(_MARK.encode(), odd))

    def _edge(self, sent: Sent) -> Sent:
        """Another method, or the address with more to it."""
        match self._random.randrange(3):
            case 0:
                return replace(sent, path=sent.path + b"/")
            case 1:
                return replace(
                    sent, path=sent.path.replace(b"/v1", self._random.choice((b"//v1", b"/v2", b"/V1", b"")), 1)
                )
        return replace(sent, method=self._random.choice(METHODS))


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value, of lists to the first only."""
    if above:
        yield above
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _places(part, (*above, name))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*above, 0))


def _with(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    """The value with another one at this place."""
    if not place:
        return odd
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(changed[place[0]], place[1:], odd)
    return changed


class Incidents(logging.Handler):
    """What the gateway logs of errors that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := record.exc_info[1]) is not None:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self.last = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error!s:.200}"


_OF_THE_INSIDE = re.compile(rb"Traceback|\.py\b|<class '|object at 0x|<frazil|<function|site-packages|Errno")


def fault_of(got: Got, *, folder: str, told_places: bool) -> str | None:
    """What is wrong with an answer; None where it is as it must be.

    `told_places`: the caller is an admin, who is told where files are.
    """
    if not told_places and folder.encode() in got.body:
        return "it names a path of the server"
    if got.status < 400:
        return _fault_of_success(got)
    if got.headers.get("content-type") != JSON:
        return f"the error is {got.headers.get('content-type')}"
    try:
        error = json.loads(got.body)["error"]
        words = [error["code"], error["message"], error["hint"]]
    except (ValueError, KeyError, TypeError):
        return "the error has another shape"
    if not all(isinstance(word, str) for word in words) or not re.fullmatch("[a-z_]+", error["code"]):
        return "the error has another shape"
    if got.status >= 500 and (got.status not in (503, 504) or error["code"] not in MAY_FAIL):
        return "it failed"
    if _OF_THE_INSIDE.search(got.body) or folder.encode() in got.body:
        return "it shows the inside"
    return None


def _fault_of_success(got: Got) -> str | None:
    if got.headers.get("content-type") != JSON or not got.body:
        return None
    try:
        json.loads(got.body, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))
    except ValueError:
        return "it is no JSON"
    return None
