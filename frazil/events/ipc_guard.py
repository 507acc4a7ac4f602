"""Arrow streams from strangers: how much they unpack to is added up before anything is unpacked.

A few kilobytes of a compressed buffer may declare gigabytes, and the reader would allocate them. The sizes stand in the
metadata (FlatBuffers, verified by Arrow when it reads a message) and in front of each compressed buffer, so this module
reads just those: fields of a table by number, and vectors of structs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

_DICTIONARY_BATCH = 2
_BUFFER = struct.Struct("<qq")


def unpacked_bytes(body: bytes) -> int:
    """What all buffers of the stream take when they are unpacked. `ValueError`: the stream is damaged or cut off."""
    source = pa.BufferReader(body)
    reader = pa.ipc.MessageReader.open_stream(source)
    total = last = 0
    for message in _messages(reader):
        last = source.tell()
        if message.type in ("record batch", "dictionary"):
            content = message.body.to_pybytes() if message.body is not None else b""
            total += _unpacked(message.metadata.to_pybytes(), content)
    # A stream that was closed ends in a marker. Without it batches may be missing; behind it, they would be overlooked.
    if source.tell() != len(body):
        raise ValueError("there are bytes behind the end of the stream")
    if source.tell() == last:
        raise ValueError("the end of the stream is missing")
    return total


def _messages(reader: pa.ipc.MessageReader) -> Iterator[pa.ipc.Message]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _unpacked(metadata: bytes, body: bytes) -> int:
    try:
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        header = message.table(2)
        if message.byte(1) == _DICTIONARY_BATCH:
            header = header.table(1)
        compressed = header.has(3)
        total = 0
        for offset, length in header.structs(2):
            if not compressed or length < 8:
                total += length
                continue
            if not 0 <= offset <= len(body) - 8:
                raise ValueError("a buffer lies outside of its message")
            declared = struct.unpack_from("<q", body, offset)[0]
            total += length - 8 if declared == -1 else declared
            if declared < -1:
                raise ValueError("a buffer has a negative size")
        return total
    except (struct.error, IndexError) as error:
        raise ValueError("the metadata of a message is damaged") from error


class _Table:
    """One FlatBuffers table: a position, and a table of where its fields are."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if self._fields < 0:
            raise IndexError
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def has(self, number: int) -> bool:
        return self._place(number) is not None

    def byte(self, number: int) -> int:
        place = self._place(number)
        return 0 if place is None else self._data[place]

    def table(self, number: int) -> _Table:
        place = self._place(number)
        if place is None:
            raise IndexError
        return _Table(self._data, self._follow(place))

    def structs(self, number: int) -> Iterator[tuple[int, int]]:
        """The elements of a vector of pairs of int64."""
        place = self._place(number)
        if place is None:
            return
        start = self._follow(place)
        count = struct.unpack_from("<I", self._data, start)[0]
        for index in range(count):
            offset, length = _BUFFER.unpack_from(self._data, start + 4 + index * _BUFFER.size)
            yield offset, length

    def _place(self, number: int) -> int | None:
        slot = 4 + 2 * number
        if slot + 2 > self._size:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + slot)[0]
        return self._at + offset if offset else None

    def _follow(self, place: int) -> int:
        target: int = place + struct.unpack_from("<I", self._data, place)[0]
        return target
