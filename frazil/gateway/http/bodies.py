"""Reading request bodies: never more than allowed, never for longer than allowed, packed or plain."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request

from frazil.errors import InvalidInput, TooLarge, Unavailable

IDLE_SECONDS = 15.0
TOTAL_SECONDS = 120.0
IN_FLIGHT_BYTES = 512 << 20
MAX_SMALL_BODY = 1 << 20
_PACKED = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_UNPACK_CHUNK = 1 << 20


class BodyTimeout(InvalidInput):
    code = "body_timeout"
    status = 408


class UnsupportedEncoding(InvalidInput):
    code = "unsupported_encoding"
    status = 415


class BodyReader:
    """Reads the bodies of one gateway, and keeps all of them together below `in_flight_bytes`."""

    def __init__(
        self,
        *,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._free = in_flight_bytes
        self._idle_seconds = idle_seconds
        self._total_seconds = total_seconds

    async def read(self, request: Request, max_bytes: int) -> Body:
        """The body as it came over the wire. Use it as a context: it takes room until it is left."""
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > max_bytes):
            raise _too_large(max_bytes)
        body = Body(self)
        try:
            await self._receive(request, body, max_bytes)
        except BaseException:
            body.release()
            raise
        return body

    async def _receive(self, request: Request, body: Body, max_bytes: int) -> None:
        deadline = time.monotonic() + self._total_seconds
        more = True
        while more:
            try:
                async with asyncio.timeout(min(self._idle_seconds, deadline - time.monotonic())):
                    message = await request.receive()
            except TimeoutError as error:
                raise BodyTimeout(
                    "the body did not arrive in time", hint="send it faster, or in smaller requests"
                ) from error
            if message["type"] == "http.disconnect":
                raise InvalidInput("the connection ended before the body did", code="body_incomplete")
            body.take(message.get("body", b""))
            more = message.get("more_body", False)
            if body.size > max_bytes:
                raise _too_large(max_bytes)

    def reserve(self, size: int) -> None:
        if size > self._free:
            raise Unavailable(
                "the bodies of the requests being served take too much memory",
                code="overloaded",
                hint="try again in a moment, with fewer or smaller requests at once",
            )
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size


class Body:
    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self._chunks: list[bytes] = []
        self.size = 0

    def take(self, chunk: bytes) -> None:
        self._reader.reserve(len(chunk))
        self.size += len(chunk)
        self._chunks.append(chunk)

    def release(self) -> None:
        self._reader.give_back(self.size)
        self.size = 0
        self._chunks = []

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def plain(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    async def unpacked(self, encoding: str, max_bytes: int) -> bytes:
        """The body after undoing its `Content-Encoding`; stops at `max_bytes`, whatever it would grow to."""
        encoding = encoding.strip().lower()
        if encoding in ("", "identity"):
            return self.plain()
        if encoding not in _PACKED:
            raise UnsupportedEncoding(
                f"a body packed as {encoding[:40]!r} cannot be read", hint="send it plain, or as gzip or zstd"
            )
        return await asyncio.to_thread(_unpack, self.plain(), _PACKED[encoding], max_bytes)


def _unpack(packed: bytes, codec: str, max_bytes: int) -> bytes:
    found: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), codec) as stream:
            while chunk := stream.read(_UNPACK_CHUNK):
                found.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(
            f"the body is not {codec}, or was cut off", code="bad_encoding", hint="check Content-Encoding"
        ) from error
    return b"".join(found)


async def json_body(request: Request, reader: BodyReader) -> Any:
    """The JSON of a small request."""
    with await reader.read(request, MAX_SMALL_BODY) as body:
        content = await body.unpacked(request.headers.get("content-encoding", ""), MAX_SMALL_BODY)
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}", code="bad_json", hint="send one JSON object") from error


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body has more than {max_bytes:,} bytes",
        code="body_too_large",
        hint="send the events in several requests",
    )
