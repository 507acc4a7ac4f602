"""A CSV reader that goes byte by byte, to compare the fast one with."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.pipeline.sources.csv.dialect import Dialect


@dataclass
class NaiveRecord:
    start: int
    line: int
    end: int = 0
    fields: list[bytes] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)


def read(data: bytes, dialect: Dialect, first_line: int = 1) -> tuple[list[NaiveRecord], bool]:
    """The records that are not blank, and whether the last one ends inside of quotes."""
    delimiter = ord(dialect.delimiter)
    quote = ord(dialect.quote) if dialect.quote else None
    escape = ord(dialect.escape) if dialect.escape else None
    found: list[NaiveRecord] = []
    at, line = 0, first_line
    inside = False
    while at < len(data):
        record = NaiveRecord(at, line)
        value, begins, inside, was_quoted = bytearray(), True, False, False
        while True:
            if at >= len(data):
                record.end = at
                break
            byte = data[at]
            crlf = data[at : at + 2] == b"\r\n"
            breaks = byte == 10 or (byte == 13 and not crlf)
            if byte == escape:
                # An escaped CR that an LF follows leaves the LF its meaning.
                escaped = data[at + 1 : at + 2]
                value += escaped
                if escaped == b"\n" or (escaped == b"\r" and data[at + 2 : at + 3] != b"\n"):
                    line += 1
                at, begins = at + 2, False
                continue
            if begins and byte == quote:
                inside, begins, was_quoted = True, False, True
            elif inside and byte == quote:
                if data[at + 1 : at + 2] == data[at : at + 1]:
                    value.append(byte)
                    at += 1
                else:
                    inside = False
            elif inside:
                value.append(byte)
                line += breaks
            elif byte == delimiter:
                record.fields.append(bytes(value))
                record.quoted.append(was_quoted)
                value, begins, was_quoted = bytearray(), True, False
            elif byte in (10, 13):
                record.end = at
                at += 2 if crlf else 1
                line += 1
                break
            else:
                value.append(byte)
                begins = False
            at += 1
        record.end = min(record.end, len(data))
        record.fields.append(bytes(value))
        record.quoted.append(was_quoted)
        if record.end > record.start:
            found.append(record)
    return found, inside
