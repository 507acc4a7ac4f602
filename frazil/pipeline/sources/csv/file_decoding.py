"""File decoding: the bytes of a file as UTF-8, from any compression and encoding.

Compression is detected by the first bytes, never by the name. The encoding is the one given, or that of a byte order
mark; else UTF-16 where every other byte of the head is mostly zero; else UTF-8. The reader of the text finds whether
all of it is valid UTF-8; a file that is not is read again as Latin-1, in which every byte is a character.
"""

from __future__ import annotations

import codecs
import hashlib
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from itertools import chain
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from frazil.errors import InvalidInput
from frazil.pipeline.sources.csv.text_encodings import UTF8

HEAD_BYTES = 16 << 10
_CHUNKS_BEHIND = 8
UTF8_BOM = codecs.BOM_UTF8
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class HashedFile(io.RawIOBase):
    """A file that is read once from its beginning to its end, and its SHA-256. Hashing takes a third of a scan: it is
    done beside the rest, in the one thread of `hasher`, a few chunks behind."""

    def __init__(self, file: BinaryIO, hasher: Executor) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self._behind: deque[Future[None]] = deque()
        self._hasher = hasher

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._behind.append(self._hasher.submit(self._sha.update, data))
        if len(self._behind) > _CHUNKS_BEHIND:
            self._behind.popleft().result()
        return data

    def sha256(self) -> str:
        """Of the whole file: what an unpacker left unread is read here."""
        while self.read(1 << 20):
            pass
        for hashed in self._behind:
            hashed.result()
        return self._sha.hexdigest()


def unpacked(file: HashedFile, compression: str | None, chunk_bytes: int, name: str) -> Iterator[bytes]:
    """The bytes in chunks of about one size, decompressed."""
    if compression is None:
        while chunk := file.read(chunk_bytes):
            yield chunk
        return
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression) as stream:
            while chunk := stream.read(chunk_bytes):
                yield chunk
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(
            f"{name} is a broken {compression} file ({error})",
            code="broken_compression",
            hint="copy or pack it again; it ends too early or its content was damaged",
        ) from error


def encoding_of(head: bytes) -> str:
    """The encoding that the first bytes indicate."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    pairs = np.frombuffer(head[: len(head) // 2 * 2], dtype=np.uint8).reshape(-1, 2) == 0
    first, second = pairs.mean(axis=0) if len(pairs) else (0.0, 0.0)
    # ASCII signs (delimiters, digits, line ends) have one zero byte each, on the same side. NUL characters in UTF-8 can
    # look like that in a small file, but for the line ends.
    line_ends = head.count(b"\n") // 2
    if second > 0.2 and first < 0.01 and head.count(b"\n\0") >= line_ends:
        return "utf-16-le"
    if first > 0.2 and second < 0.01 and head.count(b"\0\n") >= line_ends:
        return "utf-16-be"
    return UTF8


def decoded(chunks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """The chunks as UTF-8, from an encoding that is not; without its byte order mark."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="strict")
    lines, first = 1, True
    try:
        for chunk in chunks:
            text = decoder.decode(chunk)
            if first and text:
                text, first = text.removeprefix("\ufeff"), False
            lines += text.count("\n")
            if text:
                yield text.encode()
        if text := decoder.decode(b"", final=True):
            yield text.encode()
    except UnicodeError as error:
        raise not_in_encoding(name, encoding, lines) from error


def first_not_utf8(data: bytes) -> int | None:
    """The place of the first byte that is not UTF-8, if there is one."""
    if data.isascii():
        return None
    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return error.start
    return None


def not_in_encoding(name: str, encoding: str, line: int) -> InvalidInput:
    return InvalidInput(
        f"{name} is not {encoding}: bytes near line {line:,} mean nothing in it",
        code="bad_encoding",
        hint="leave the encoding out to have it detected, or give another one, such as latin-1 or cp1252",
    )


def peek(chunks: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, at least `size` if there are as many; and all of them again."""
    head = b""
    while len(head) < size and (chunk := next(chunks, b"")):
        head += chunk
    return head, chain([head] if head else [], chunks)


def without_prefix(chunks: Iterator[bytes], length: int) -> Iterator[bytes]:
    """The chunks without their first bytes, which are all in the first one."""
    first = next(chunks, b"")[length:]
    return chain([first] if first else [], chunks)
