"""Arrow streams from clients: their unpacked size is computed before anything is unpacked.

A few kilobytes of a compressed buffer may declare gigabytes, and the reader would allocate them. The sizes are in the
metadata (FlatBuffers, verified by Arrow when it reads a message) and in front of each compressed buffer, so this module
reads just those: fields of a table by number, and vectors of structs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

_DICTIONARY_BATCH = 2
_BUFFER = struct.Struct("<qq")


@dataclass
class Unpacked:
    """What a stream becomes when it is read."""

    size: int = 0
    """Bytes of all buffers."""
    values: int = 0
    """Values of all columns and of what is nested in them. Buffers do not include nulls, which take no byte."""
    rows: int = 0
    metadata: int = 0
    """Bytes of the messages' metadata."""


def measure(body: bytes) -> Unpacked:
    """Add up what reading the stream takes. `ValueError`: the stream is damaged or cut off."""
    source = pa.BufferReader(body)
    reader = pa.ipc.MessageReader.open_stream(source)
    found, dictionaries = Unpacked(), _Dictionaries()
    last = 0
    for message in _messages(reader):
        last = source.tell()
        found.metadata += len(message.metadata)
        if message.type in ("record batch", "dictionary"):
            content = memoryview(message.body) if message.body is not None else memoryview(b"")
            _add(message.metadata.to_pybytes(), content, found, dictionaries)
    # A stream that was closed ends in a marker. Without it batches may be missing; behind it, they would be overlooked.
    if source.tell() != len(body):
        raise ValueError("there are bytes after the end of the stream")
    if source.tell() == last:
        raise ValueError("the end of the stream is missing")
    return found


class _Dictionaries:
    """How large the dictionaries are. After a delta, the next batch gets a new one of everything up to it."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[int, int]] = {}
        self._grown: set[int] = set()

    def take(self, number: int, size: int, values: int, *, delta: bool) -> None:
        if delta:
            before = self._sizes.get(number, (0, 0))
            self._sizes[number] = (before[0] + size, before[1] + values)
            self._grown.add(number)
        else:
            self._sizes[number] = (size, values)

    def copied(self) -> tuple[int, int]:
        """Bytes and values that reading a batch now copies."""
        copies = [self._sizes[number] for number in self._grown]
        self._grown.clear()
        return sum(size for size, _ in copies), sum(values for _, values in copies)


def _messages(reader: pa.ipc.MessageReader) -> Iterator[pa.ipc.Message]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _add(metadata: bytes, body: memoryview, found: Unpacked, dictionaries: _Dictionaries) -> None:
    try:
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        header = message.table(2)
        if message.byte(1) == _DICTIONARY_BATCH:
            size, values = _of_batch(header.table(1), body)
            dictionaries.take(header.number(0), size, values, delta=bool(header.byte(2)))
        else:
            size, values = _of_batch(header, body)
            copied, copied_values = dictionaries.copied()
            size, values = size + copied, values + copied_values
            found.rows += header.number(0)
        found.size += size
        found.values += values
    except (struct.error, IndexError) as error:
        raise ValueError("the metadata of a message is damaged") from error


def _of_batch(header: _Table, body: memoryview) -> tuple[int, int]:
    """The bytes and the values of one batch."""
    compressed = header.has(3)
    values = size = 0
    for length, _ in header.structs(1):
        if length < 0:
            raise ValueError("a column has a negative length")
        values += length
    for offset, length in header.structs(2):
        if length < 0:
            raise ValueError("a buffer has a negative size")
        if not compressed or length < 8:
            size += length
            continue
        if not 0 <= offset <= len(body) - 8:
            raise ValueError("a buffer is outside its message")
        declared = struct.unpack_from("<q", body, offset)[0]
        if declared < -1:
            raise ValueError("a buffer has a negative size")
        size += length - 8 if declared == -1 else declared
    return size, values


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

    def number(self, number: int) -> int:
        """An int64; 0 where it is absent."""
        place = self._place(number)
        return 0 if place is None else int(struct.unpack_from("<q", self._data, place)[0])

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
