"""Request bodies: never more than allowed, never for longer than allowed, packed or plain."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.types import Message

from frazil.access import Memory
from frazil.errors import FrazilError, InvalidInput, TooLarge
from frazil.gateway.http.authorization import place_of
from frazil.gateway.threads import to_the_end

IDLE_SECONDS = 15.0
TOTAL_SECONDS = 120.0
SLOW_SECONDS = 1.0
"""A body whose next part takes longer makes its request one of those that wait."""
MAX_SMALL_BODY = 1 << 20
READER = "frazil.reader"
"""The reader of bodies, in the scope of a request."""
_PACKED = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_UNPACK_CHUNK = 1 << 20
_PARSED_BYTES = 32
"""What a byte of JSON becomes at most: an empty object takes three characters and 88 bytes."""


class BodyTimeout(InvalidInput):
    code = "body_timeout"
    status = 408


class UnsupportedEncoding(InvalidInput):
    code = "unsupported_encoding"
    status = 415


class BodyReader:
    """Reads the bodies of one gateway. What they take of memory is counted in the place of each request."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._total_seconds = total_seconds
        self._slow_seconds = slow_seconds

    async def read(self, request: Request, max_bytes: int) -> Body:
        """The body as it came over the wire. Use it as a context: it takes room until it is left."""
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > max_bytes):
            raise _too_large(max_bytes)
        body = Body(Memory(place_of(request)))
        try:
            await self._receive(request, body, max_bytes)
        except BaseException:
            body.release()
            raise
        return body

    async def _receive(self, request: Request, body: Body, max_bytes: int) -> None:
        deadline = time.monotonic() + self._total_seconds
        with contextlib.ExitStack() as waits:
            more = True
            while more:
                message = await self._next_message(request, deadline, waits)
                if message["type"] == "http.disconnect":
                    raise InvalidInput("the connection ended before the body did", code="body_incomplete")
                body.take(message.get("body", b""))
                more = message.get("more_body", False)
                if body.size > max_bytes:
                    raise _too_large(max_bytes)

    async def _next_message(self, request: Request, deadline: float, waits: contextlib.ExitStack) -> Message:
        """The next part of the body. A request that has to wait for it is one of its token's waits from then on."""
        refused: list[FrazilError] = []
        loop = asyncio.get_running_loop()

        def note_slow() -> None:
            try:
                waits.enter_context(place_of(request).waiting())
            except FrazilError as error:
                refused.append(error)
                limit.reschedule(loop.time())

        limit = asyncio.timeout(min(self._idle_seconds, deadline - time.monotonic()))
        slow = loop.call_later(self._slow_seconds, note_slow)
        try:
            async with limit:
                return await request.receive()
        except TimeoutError as error:
            if refused:
                raise refused[0] from None
            raise BodyTimeout(
                "the body did not arrive in time", hint="send it faster, or in smaller requests"
            ) from error
        finally:
            slow.cancel()


class Body:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chunks: list[bytes] = []
        self.size = 0

    def take(self, chunk: bytes) -> None:
        self._memory.take(len(chunk))
        self.size += len(chunk)
        self._chunks.append(chunk)

    def release(self) -> None:
        self._memory.release()
        self.size = 0
        self._chunks = []

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def plain(self) -> bytes:
        """The body in one piece. While it is being joined it is there twice, and counted twice."""
        if len(self._chunks) != 1:
            self._memory.take(self.size)
            self._chunks = [b"".join(self._chunks)]
            self._memory.give_back(self.size)
        return self._chunks[0]

    async def unpacked(self, encoding: str, max_bytes: int) -> bytes:
        """The body after undoing its `Content-Encoding`; stops at `max_bytes`, whatever it would grow to.

        Each part is counted as it is unpacked, so that it also stops where there is no memory left for it.
        """
        encoding = encoding.strip().lower()
        if encoding in ("", "identity"):
            return self.plain()
        if encoding not in _PACKED:
            raise UnsupportedEncoding(
                f"a body packed as {encoding[:40]!r} cannot be read", hint="send it plain, or as gzip or zstd"
            )
        packed, size = self.plain(), self.size
        self._chunks, self.size = [], 0
        codec = _PACKED[encoding]
        try:
            with pa.CompressedInputStream(pa.BufferReader(packed), codec) as stream:
                while chunk := await _read_in_thread(stream):
                    self.take(chunk)
                    if self.size > max_bytes:
                        raise _too_large(max_bytes)
        except (OSError, pa.ArrowException) as error:
            raise InvalidInput(
                f"the body is not {codec}, or was cut off", code="bad_encoding", hint="check Content-Encoding"
            ) from error
        del packed
        self._memory.give_back(size)
        return self.plain()


async def _read_in_thread(stream: pa.CompressedInputStream) -> bytes:
    """The next part. A request that is cancelled waits for it: the stream must not be closed while it is being read."""
    reading = asyncio.get_running_loop().run_in_executor(None, stream.read, _UNPACK_CHUNK)
    part: bytes = await to_the_end(reading)
    return part


def reader_of(request: Request) -> BodyReader:
    reader: BodyReader = request.scope[READER]
    return reader


async def json_body(request: Request) -> Any:
    """The JSON of a small request. What it is parsed into is counted until the request ends."""
    with await reader_of(request).read(request, MAX_SMALL_BODY) as body:
        content = await body.unpacked(request.headers.get("content-encoding", ""), MAX_SMALL_BODY)
        place_of(request).take(len(content) * _PARSED_BYTES)
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(
                f"the body is not JSON: {error}", code="bad_json", hint="send one JSON object"
            ) from error


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body has more than {max_bytes:,} bytes",
        code="body_too_large",
        hint="send the events in several requests",
    )
