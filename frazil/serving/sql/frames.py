"""Frames between pool and worker: a JSON header and raw buffers, each of known length.

`length of the header | number of buffers | length of each buffer | header | buffers`. The worker is not trusted: its
side of the conversation is read with limits, and whatever breaks the form is a `BrokenFrame`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

_LEAD = struct.Struct(">II")
_MAX_BUFFERS = 1024
_MAX_HEADER = 4 << 20
# A tail, the schemas and parameters of a request: the pool bounds each; this only stops a length gone wild.
MAX_REQUEST = 1 << 30


class BrokenFrame(Exception):
    """What came is not a frame, or larger than agreed."""


@dataclass(frozen=True)
class Frame:
    header: dict[str, Any]
    buffers: Sequence[bytes]


def pack(header: dict[str, Any], buffers: Sequence[bytes] = ()) -> list[bytes]:
    """The pieces to send, in order; buffers are not copied."""
    text = msgspec.json.encode(header)
    lengths = struct.pack(f">{len(buffers)}Q", *map(len, buffers))
    return [_LEAD.pack(len(text), len(buffers)) + lengths + text, *buffers]


async def read_frame(reader: asyncio.StreamReader, max_bytes: int) -> Frame:
    """The next frame of a worker. An end in the middle is an `asyncio.IncompleteReadError`."""
    header_length, count = _lead(await reader.readexactly(_LEAD.size))
    lengths = _lengths(await reader.readexactly(8 * count), max_bytes)
    header = _header(await reader.readexactly(header_length))
    return Frame(header, [await reader.readexactly(length) for length in lengths])


def send_frame(sock: socket.socket, header: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
    for piece in pack(header, buffers):
        sock.sendall(piece)


def receive_frame(sock: socket.socket) -> Frame | None:
    """The next frame of the pool; None when the pool has closed."""
    lead = _receive(sock, _LEAD.size)
    if lead is None:
        return None
    header_length, count = _lead(lead)
    lengths = _lengths(_whole(sock, 8 * count), MAX_REQUEST)
    header = _header(_whole(sock, header_length))
    return Frame(header, [_whole(sock, length) for length in lengths])


def _lead(raw: bytes) -> tuple[int, int]:
    header_length, count = _LEAD.unpack(raw)
    if header_length > _MAX_HEADER or count > _MAX_BUFFERS:
        raise BrokenFrame("the lengths make no sense")
    return header_length, count


def _lengths(raw: bytes, max_bytes: int) -> tuple[int, ...]:
    lengths = struct.unpack(f">{len(raw) // 8}Q", raw)
    if sum(lengths) > max_bytes:
        raise BrokenFrame("more bytes than agreed")
    return lengths


def _header(raw: bytes) -> dict[str, Any]:
    try:
        header = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame("the header is no JSON") from error
    if not isinstance(header, dict):
        raise BrokenFrame("the header is no object")
    return header


def _receive(sock: socket.socket, length: int) -> bytes | None:
    received = bytearray(length)
    view = memoryview(received)
    at = 0
    while at < length:
        step = sock.recv_into(view[at:])
        if step == 0:
            return None
        at += step
    return bytes(received)


def _whole(sock: socket.socket, length: int) -> bytes:
    received = _receive(sock, length)
    if received is None:
        raise BrokenFrame("the other side ended in the middle")
    return received
