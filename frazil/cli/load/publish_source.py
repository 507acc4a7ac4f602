"""Files of events, read as request bodies from any place on: NDJSON, JSON, Arrow.

Every event without an id gets one made of the file's identity and its number in the file, so that publishing the same
file twice is publishing it once.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from frazil.client import (
    ARROW,
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    NDJSON,
    arrow_batches,
    event_id,
    identity_of,
)
from frazil.errors import InvalidInput

FORMATS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "json", ".arrow": "arrow", ".ipc": "arrow"}


class _Head(msgspec.Struct):
    """What must be known of an event to give it an id; the rest of it stays as it is."""

    id: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"")
    events: msgspec.Raw = msgspec.Raw(b"")


_HEAD = msgspec.json.Decoder(_Head)


@dataclass(frozen=True)
class SourcePlace:
    """How far a file was read: the events and bytes before it, and the last of those lines to know it again."""

    events: int = 0
    lines: int = 0
    offset: int = 0
    last_line: str = ""


@dataclass(frozen=True)
class SourceChunk:
    """One request: its body, its events, the line of the first of them, and the place after it."""

    body: bytes
    events: int
    content_type: str
    line_numbers: tuple[int, ...]
    after: SourcePlace


@dataclass(frozen=True)
class EventSource:
    """What is published: a file, or standard input where `path` is None."""

    path: Path | None
    format: str
    plain: bool
    identity: str
    size: int | None

    def chunks(self, start: SourcePlace) -> Iterator[SourceChunk]:
        if self.format == "arrow":
            yield from self._arrow_chunks(start)
        elif self.format == "json":
            yield from self._json_chunks(start)
        else:
            yield from self._line_chunks(start)

    def knows(self, place: SourcePlace) -> bool:
        """Whether the file still is what it was when it was read up to this place."""
        if place == SourcePlace() or self.path is None:
            return place == SourcePlace()
        if self.format != "ndjson":
            return place.last_line == str(self.size)
        if self.size is None or self.size < place.offset:
            return False
        with self.path.open("rb") as file:
            begin = max(0, place.offset - MAX_BATCH_BYTES * 4)
            file.seek(begin)
            before = file.read(place.offset - begin)
        lines = before.splitlines(keepends=True)
        return bool(lines) and identity_of(lines[-1].strip()) == place.last_line

    def _line_chunks(self, start: SourcePlace) -> Iterator[SourceChunk]:
        lines: list[bytes] = []
        numbers: list[int] = []
        size = 0
        place = start
        with _opened(self.path) as file:
            if start.offset:
                file.seek(start.offset)
            for raw in file:
                place = SourcePlace(place.events, place.lines + 1, place.offset + len(raw), identity_of(raw.strip()))
                if not raw.strip():
                    continue
                line = self._event(raw.strip(), place.lines)
                lines.append(line)
                numbers.append(place.lines)
                size += len(line)
                place = SourcePlace(place.events + 1, place.lines, place.offset, place.last_line)
                if len(lines) >= MAX_BATCH_EVENTS or size >= MAX_BATCH_BYTES:
                    yield SourceChunk(b"".join(lines), len(lines), NDJSON, tuple(numbers), place)
                    lines, numbers, size = [], [], 0
        if lines:
            yield SourceChunk(b"".join(lines), len(lines), NDJSON, tuple(numbers), place)

    def _event(self, raw: bytes, number: int) -> bytes:
        """The event unchanged, with an id if it has none. It is not encoded again: no digit of a number may change."""
        try:
            known = _HEAD.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _bad_line(self.path, number, f"it is not a JSON object: {error}") from error
        with_id = b'{"id":"%s",' % event_id(self.identity, number).encode()
        if self.plain:
            return with_id + b'"data":' + raw + b"}\n"
        if not bytes(known.data):
            raise _bad_line(self.path, number, "it has no `data`; add --data-only for plain objects")
        if bytes(known.id) == b"null":
            raise _bad_line(self.path, number, "its id is null; leave it out, or give it one")
        return (raw if bytes(known.id) else with_id + raw[1:].lstrip()) + b"\n"

    def _json_chunks(self, start: SourcePlace) -> Iterator[SourceChunk]:
        with _opened(self.path) as file:
            events = self._elements(file.read())
        at = start.events
        while at < len(events):
            lines: list[bytes] = []
            size = 0
            while at + len(lines) < len(events) and len(lines) < MAX_BATCH_EVENTS and size < MAX_BATCH_BYTES:
                lines.append(self._event(events[at + len(lines)], at + len(lines) + 1))
                size += len(lines[-1])
            numbers = tuple(range(at + 1, at + 1 + len(lines)))
            at += len(lines)
            yield SourceChunk(b"".join(lines), len(lines), NDJSON, numbers, SourcePlace(at, at, 0, str(self.size)))

    def _elements(self, raw: bytes) -> list[bytes]:
        """The objects of a JSON file, each on one line: those of an array, of `events`, or the only one."""
        try:
            compact = msgspec.json.format(raw, indent=-1)
            if compact.startswith(b"["):
                return [bytes(element) for element in msgspec.json.decode(compact, type=list[msgspec.Raw])]
            listed = bytes(_HEAD.decode(compact).events)
            if listed.startswith(b"[") and not self.plain:
                return [bytes(element) for element in msgspec.json.decode(listed, type=list[msgspec.Raw])]
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"{self.path or 'standard input'} is not JSON: {error}", code="bad_file") from error
        return [compact]

    def _arrow_chunks(self, start: SourcePlace) -> Iterator[SourceChunk]:
        import pyarrow as pa

        try:
            with _opened(self.path) as file:
                raw = pa.py_buffer(file.read())
            table = _read_arrow(raw)
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{self.path or 'standard input'} is not Arrow: {error}",
                code="bad_file",
                hint="write it with pyarrow.ipc.new_file or new_stream",
            ) from error
        at = start.events
        for body, count, _ in arrow_batches(table, first_row=at, identity=self.identity):
            numbers = tuple(range(at + 1, at + 1 + count))
            at += count
            yield SourceChunk(body, count, ARROW, numbers, SourcePlace(at, at, 0, str(self.size)))


def open_source(table: str, file: str, *, format: str | None, plain: bool, name: str | None) -> EventSource:
    """The source that `FILE|-` names. Its identity is its path and first line, or the given name."""
    path = None if file == "-" else Path(file)
    if path is not None and not path.is_file():
        raise InvalidInput(f"there is no file {file}", code="bad_file", hint="check the path; - reads standard input")
    kind = format or (FORMATS.get(path.suffix.lower()) if path else "ndjson")
    if kind not in ("ndjson", "json", "arrow"):
        raise InvalidInput(
            f"the format of {file} is not clear from its name", code="bad_format", hint="add --format ndjson|json|arrow"
        )
    if name:
        identity = identity_of(table, "name", name)
    elif path is None:
        # Standard input has no identity, so it counts as new.
        identity = identity_of(table, uuid.uuid4().bytes)
    else:
        identity = identity_of(table, "file", os.path.realpath(path), _first_line(path))
    return EventSource(path, kind, plain, identity, path.stat().st_size if path else None)


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        for line in iter(lambda: file.readline(1 << 16), b""):
            if line.strip():
                return line.strip()
    return b""


def _read_arrow(raw: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.ipc.open_file(raw).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(raw).read_all()


class _Opened:
    def __init__(self, file: BinaryIO, *, close: bool) -> None:
        self._file = file
        self._close = close

    def __enter__(self) -> BinaryIO:
        return self._file

    def __exit__(self, *error: object) -> None:
        if self._close:
            self._file.close()


def _opened(path: Path | None) -> _Opened:
    return _Opened(sys.stdin.buffer, close=False) if path is None else _Opened(path.open("rb"), close=True)


def _bad_line(path: Path | None, number: int, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{path or 'standard input'} line {number}: {reason}",
        code="bad_line",
        hint="fix the line and run the same command again; it continues where it stopped",
    )
