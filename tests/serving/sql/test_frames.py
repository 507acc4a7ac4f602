"""Frames from a worker that is not trusted."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading

import pytest

from frazil.serving.sql.frames import BrokenFrame, Frame, pack, read_frame, receive_frame, send_frame


async def read(raw: bytes, max_bytes: int = 1000) -> Frame:
    reader = asyncio.StreamReader()
    reader.feed_data(raw)
    reader.feed_eof()
    return await asyncio.wait_for(read_frame(reader, max_bytes), 60)


async def test_what_is_packed_is_read() -> None:
    header = {"a": [1, 2**100, "ü", None], "b": {"c": 1.5}}
    frame = await read(b"".join(pack(header, [b"one", b"", b"\0" * 500])))
    assert frame.header == header
    assert list(frame.buffers) == [b"one", b"", b"\0" * 500]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 64,
        struct.pack(">II", 2, 0) + b"[]",
        struct.pack(">II", 3, 0) + b"{{{",
        struct.pack(">II", 4, 0) + b"\xff\xfe\xfd\xfc",
        struct.pack(">II", 2, 1) + struct.pack(">Q", 1 << 60) + b"{}",
        struct.pack(">II", 2, 2) + struct.pack(">QQ", 600, 600) + b"{}",
        struct.pack(">II", 200_000, 0) + b"[" * 200_000,
        struct.pack(">II", 10_000, 0) + b"1" * 10_000,
    ],
)
async def test_nonsense_is_a_broken_frame(raw: bytes) -> None:
    with pytest.raises(BrokenFrame):
        await read(raw)


async def test_an_end_in_the_middle_is_noticed() -> None:
    raw = b"".join(pack({"a": 1}, [b"hello"]))
    for cut in range(len(raw)):
        with pytest.raises(asyncio.IncompleteReadError):
            await read(raw[:cut])


def test_large_frames_both_ways_over_a_socket() -> None:
    ours, theirs = socket.socketpair()
    large = random.randbytes(5 << 20)

    def echo() -> None:
        while (frame := receive_frame(theirs)) is not None:
            send_frame(theirs, frame.header, frame.buffers)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    writer = threading.Thread(target=send_frame, args=(ours, {"n": 1}, [large, b"x"]), daemon=True)
    writer.start()
    frame = receive_frame(ours)
    assert frame is not None and frame.header == {"n": 1} and list(frame.buffers) == [large, b"x"]
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
