"""Connection: HTTP/1.1 of one client, with limits on size, number and time of everything it sends and takes.

uvicorn's protocol on httptools parses strictly and is quick, and has none of these limits. Here each is counted before
memory is taken, and each has a code. `ConnectionTable` says how many connections there may be; `check` is called for
each of them about once a second and ends those that are too slow.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from frazil.errors import FrazilError, Unavailable
from frazil.gateway.http.authorization import IDENTITY
from frazil.gateway.http.connection_table import ConnectionTable, Idle
from frazil.gateway.http.request_errors import BadRequest, HeadersTooLarge, RequestTimeout, UrlTooLong
from frazil.gateway.http.responses import error_answer
from frazil.gateway.http.single_write import SingleWriteTransport
from frazil.gateway.metrics import Metrics
from frazil.gateway.settings import ServerSettings

_FRAMING_LENGTHS = {len(b"host"), len(b"transfer-encoding")}
_HEAD_SLICE = 16 << 10
"""A head is parsed in slices, so that no more than this is kept beyond the limit."""
_CHUNK_OVERHEAD = 64 << 10
"""Sizes, extensions and trailers of chunks may take this much, and as much again as the body itself."""
_MAX_PIPELINED = 16
"""Requests that wait behind another one of the same connection [10,000 of them cost 22 MB]."""
_LINGER_SECONDS = 3.0
"""Time for a client to read a refusal before the connection closes: it may be still sending."""
_LINGER_BYTES = 1 << 20
"""What a refused client may still send in that time."""


class RateWindow:
    """Rate window: tells when a peer was slower than the least rate for a whole window of time."""

    def __init__(self, seconds: float, bytes_per_second: float) -> None:
        self._seconds = seconds
        self._rate = bytes_per_second
        self._since: float | None = None
        self.size = 0

    def is_too_slow(self, now: float, *, waiting: bool) -> bool:
        """`waiting`: whether it is the peer that everything waits for. Otherwise the window begins anew."""
        if not waiting:
            self._since = None
            return False
        if self._since is None:
            self._since, self.size = now, 0
            return False
        elapsed = now - self._since
        if elapsed < self._seconds:
            return False
        slow = self.size < self._rate * elapsed
        self._since, self.size = now, 0
        return slow


class _PipelineFull(Exception):
    """The client sent more requests than may wait for each other."""


class GatewayConnection(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerSettings,
        table: ConnectionTable[GatewayConnection],
        metrics: Metrics,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._table = table
        self._metrics = metrics
        self._application = self.app
        self.app = cast(Any, self._serve)
        self._wire: SingleWriteTransport
        self._head_since: float | None = None
        """Since when a request head is awaited; None while none has begun."""
        self._head_received = 0
        self._head_size = 0
        self._header_count = 0
        self._host_count = 0
        self._head_began = False
        self._in_body = False
        self._body_size = 0
        self._chunk_overhead = 0
        self._had_request = False
        self._has_token = False
        """Whether a request of it was let in by its token."""
        self._previous: RequestResponseCycle | None = None
        """The request before the one that is being received."""
        self._discards = False
        self._discarded = 0
        self._lingers_since: float | None = None
        """Since when the answer is complete and the client still sends."""
        rate = int(limits.min_bytes_per_second)
        self._receiving = RateWindow(limits.body_seconds, rate)
        self._sending = RateWindow(limits.answer_seconds, rate)
        self._sent = 0

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._wire = SingleWriteTransport(transport, self.loop)
        super().connection_made(self._wire)
        self._head_since = self._table.now
        if not self._table.admit(self, self.client[0] if self.client else ""):
            self.shed()
        self._metrics.connections(len(self._table))

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self)
        self._metrics.connections(len(self._table))
        self._unset_keepalive_if_required()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        super().connection_lost(exc)

    def shed(self) -> None:
        """Close the connection: there are too many. A client without an answer yet gets an error first."""
        if not self._had_request and not self._discards:
            self._discards = True
            self._write_error(
                Unavailable(
                    "there are too many connections",
                    code="too_many_connections",
                    hint="keep fewer connections open, and try again in a moment",
                )
            )
            self.transport.close()
        else:
            self._metrics.refused("too_many_connections")
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._discards:
            self._discarded += len(data)
            if self._discarded > _LINGER_BYTES:
                self.flow.pause_reading()
            return
        self._unset_keepalive_if_required()
        if self._head_since is None and not self._in_body:
            self._begin_head()
        try:
            if len(data) <= _HEAD_SLICE:
                self._feed(data)
            else:
                self._feed_slices(memoryview(data))
        except httptools.HttpParserUpgrade:
            self._refuse_upgrade()
        except httptools.HttpParserError as error:
            self._refuse(_cause(error))
        except FrazilError as error:
            self._refuse(error)

    def _feed_slices(self, data: memoryview) -> None:
        while data:
            part = data if self._in_body else data[:_HEAD_SLICE]
            data = data[len(part) :]
            self._feed(part)

    def _feed(self, part: bytes | memoryview) -> None:
        self._head_began = False
        if self._in_body:
            self._chunk_overhead += len(part)
        self.parser.feed_data(part)
        if self._head_since is not None:
            self._head_received = 1 if self._head_began else self._head_received + len(part)
            if self._head_received > self._limits.max_header_bytes + self._limits.max_url_bytes:
                raise self._headers_too_large()
        elif self._in_body and self._chunk_overhead > _CHUNK_OVERHEAD + self._body_size:
            raise BadRequest("the chunks of the body hold more framing than content", hint="send larger chunks")

    def _begin_head(self) -> None:
        self._head_since = self._table.now
        self._head_received = 0

    # What the parser finds

    def on_message_begin(self) -> None:
        if self._head_since is None:
            self._begin_head()
        self._head_began = True
        self._head_size = self._header_count = self._host_count = 0
        self._body_size = self._chunk_overhead = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.max_url_bytes:
            raise UrlTooLong(
                f"the address has more than {int(self._limits.max_url_bytes):,} bytes",
                hint="send long values in the body, or raise server.max_url_bytes",
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        self._header_count += 1
        if self._head_size > self._limits.max_header_bytes or self._header_count > self._limits.max_headers:
            raise self._headers_too_large()
        if self._in_body:
            return  # a trailer: what comes after the body must not pass for a header
        if len(name) in _FRAMING_LENGTHS:
            self._check_framing(name.lower(), value)
        super().on_header(name, value)

    def _check_framing(self, name: bytes, value: bytes) -> None:
        """Refuse what a proxy may read in another way than we do, and the parser lets pass."""
        if name == b"host":
            self._host_count += 1
            if self._host_count > 1:
                raise BadRequest("the request has two Host headers", hint="send one")
        elif name == b"transfer-encoding" and (
            value.strip().lower() != b"chunked" or self.parser.get_http_version() != "1.1"
        ):
            raise BadRequest(
                "only Transfer-Encoding: chunked is understood, and only in HTTP/1.1",
                hint="say in Content-Encoding that a body is compressed",
            )

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise _PipelineFull
        if (version := self.parser.get_http_version()) not in ("1.1", "1.0"):
            raise BadRequest(f"HTTP/{version} is not spoken here", hint="speak HTTP/1.1")
        self._previous = self.cycle
        super().on_headers_complete()
        self._head_since = None
        self._in_body = self._had_request = True
        self._table.busy(self)

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        self._chunk_overhead -= len(body)
        self._receiving.size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._lingers_since = None
        super().on_message_complete()

    # Answers

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; it counts as being served until its client has taken the answer."""
        started = False

        async def send_and_drain(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)
            if self.flow.write_paused:
                await self.flow.drain()

        try:
            await cast(Any, self._application)(scope, receive, send_and_drain)
        except asyncio.CancelledError:
            if started:
                raise
            stopped = Unavailable("the gateway stops", code="stopping", hint="try again when it is back")
            await error_answer(stopped)(scope, receive, send)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # A panic of a library in Rust is no Exception: the middleware does not see it, and uvicorn answers in text.
            if started:
                raise
            await error_answer(error)(scope, receive, send)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._has_token = self._has_token or IDENTITY in self.cycle.scope
        if self.cycle.response_complete and not self.transport.is_closing():
            self._table.idle(self, Idle.TOKEN if self._has_token else Idle.NO_TOKEN)
            if self._in_body:
                self._lingers_since = self._table.now

    def _refuse(self, error: FrazilError | None) -> None:
        """Answer the request that is being received with an error and close, once those before it have their answers.

        Without an error the connection closes then: a client that sees no answer sends the request again.
        """
        self._discards = True
        failing = self.cycle if self._in_body else None
        before = self._previous if self._in_body else self.cycle
        if failing is not None:
            failing.disconnected = True
            failing.message_event.set()
        if before is not None and not before.response_complete:
            if failing is not None and self.pipeline and self.pipeline[0][0] is failing:
                self.pipeline.popleft()
            before.keep_alive = False
            if error is not None:
                self._metrics.refused(error.code)
        elif error is None or (failing is not None and failing.response_started):
            self.transport.close()
        else:
            self._write_error(error)
            self.transport.write_eof()
            self._lingers_since = self._table.now
            self._table.idle(self, Idle.REFUSED)

    def _write_error(self, error: FrazilError) -> None:
        self._metrics.refused(error.code)
        answer = error_answer(error)
        headers = [*self.server_state.default_headers, *answer.raw_headers, (b"connection", b"close")]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[answer.status_code], *lines, b"\r\n", bytes(answer.body)]))

    def _refuse_upgrade(self) -> None:
        """Answer a request for another protocol in this one, as RFC 9110 allows, and close: the rest is not ours."""
        self._discards = True
        self.cycle.keep_alive = False

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"the headers have more than {int(self._limits.max_header_bytes):,} bytes "
            f"or {self._limits.max_headers} lines",
            hint="send fewer and shorter headers (server.max_header_bytes, server.max_headers)",
        )

    # Time

    def check(self) -> None:
        """End what takes too long."""
        now = self._table.now
        sent, self._sent = self._sent, self._wire.sent()
        self._sending.size += self._sent - sent
        unsent = self._wire.unsent() > 0
        if unsent and not (self._has_token or (self._had_request and IDENTITY in self.cycle.scope)):
            self._table.idle(self, Idle.NO_TOKEN)  # it may go, if there are too many
        if self._sending.is_too_slow(now, waiting=unsent):
            self._metrics.refused("answer_timeout")
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._lingers_since is not None:
            if now - self._lingers_since > _LINGER_SECONDS:
                self.transport.close()
        elif not self._discards:
            self._check_head(now)
            self._check_body(now)

    def _check_head(self, now: float) -> None:
        if self._head_since is None:
            return
        if self.flow.read_paused:
            self._head_since = now
        elif now - self._head_since > self._limits.header_seconds:
            if self._head_received:
                self._refuse(
                    RequestTimeout(
                        f"the headers did not arrive within {self._limits.header_seconds:g} s",
                        code="headers_timeout",
                        hint="send the request in one piece",
                    )
                )
            else:
                self.transport.close()

    def _check_body(self, now: float) -> None:
        waiting = self._in_body and not self.flow.read_paused and not self.cycle.waiting_for_100_continue
        if self._receiving.is_too_slow(now, waiting=waiting):
            self._refuse(
                RequestTimeout(
                    f"the body came with less than {int(self._limits.min_bytes_per_second):,} bytes a second",
                    code="body_timeout",
                    hint="send it faster, or in smaller requests (server.min_bytes_per_second)",
                )
            )


def _cause(error: httptools.HttpParserError) -> FrazilError | None:
    """What to answer for an error of the parser: ours, where one of our callbacks raised it."""
    cause = error.__context__
    if isinstance(cause, FrazilError):
        return cause
    if isinstance(cause, _PipelineFull):
        return None
    return BadRequest("this is not a request of HTTP/1.1", hint=f"the parser says: {error}")
