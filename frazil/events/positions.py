"""Positions of events in their stream, and the freshness token that holds positions of several tables.

A stream is a sequence of messages, a message is a batch of events. The position of an event packs both numbers into
one int64 that sorts as the stream does: `sequence << 20 | index`. It is stored with each row as `_seq`.

A watermark is a position too, and exclusive: every event below it is committed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from frazil.errors import InvalidInput

INDEX_BITS = 20
MAX_EVENTS_PER_MESSAGE = 1 << INDEX_BITS
_PREFIX = "fzt1."


def position(sequence: int, index: int) -> int:
    return sequence << INDEX_BITS | index


def sequence_of(pos: int) -> int:
    return pos >> INDEX_BITS


def first_position(sequence: int) -> int:
    """The first position of a message, and so the watermark that says all before it is committed."""
    return sequence << INDEX_BITS


@dataclass(frozen=True)
class Mark:
    """A position in one stream, with the identity of that stream."""

    stream: str
    position: int


@dataclass(frozen=True)
class Token:
    """A freshness token: for each table the last position that the holder has written or read.

    Opaque to users. Tokens can be merged, so that one token covers writes to several tables.
    """

    marks: Mapping[str, Mark] = field(default_factory=dict)

    def __str__(self) -> str:
        raw = msgspec.json.encode({table: [m.stream, m.position] for table, m in sorted(self.marks.items())})
        return _PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Token:
        try:
            if not text.startswith(_PREFIX) or len(text) > 16_384:
                raise ValueError("prefix")
            body = text[len(_PREFIX) :]
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            marks = msgspec.json.decode(raw, type=dict[str, tuple[str, int]])
        except (ValueError, binascii.Error, msgspec.DecodeError) as error:
            raise InvalidInput(
                "this is not a freshness token",
                code="bad_token",
                hint="pass the `token` of a receipt or of an answer, unchanged",
            ) from error
        return cls({table: Mark(stream, pos) for table, (stream, pos) in marks.items()})

    @classmethod
    def of(cls, table: str, stream: str, pos: int) -> Token:
        return cls({table: Mark(stream, pos)})

    def merge(self, other: Token) -> Token:
        """The token that is reached when both are. Another stream under the same table name: the other one wins."""
        marks = dict(self.marks)
        for table, mark in other.marks.items():
            mine = marks.get(table)
            if mine is None or mine.stream != mark.stream or mine.position < mark.position:
                marks[table] = mark
        return Token(marks)
