"""CSV lexer: the records of a small piece of text, sign by sign, for heads and headers.

It reads as Arrow's CSV reader does, which reads the rest. A quote means something at the beginning of a field only;
inside of quotes two of them are one; what follows the closing quote belongs to the field as it is. CR, LF and CRLF end
a record, blank lines are none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from frazil.pipeline.sources.csv.dialect import Dialect


def first_record(data: bytes, dialect: Dialect, max_fields: int) -> list[str]:
    """The record that `data` begins with; of one that has more fields, one more than `max_fields`."""
    return _record(data.decode("utf-8", errors="replace"), 0, dialect, max_fields)[0]


def read_records(data: bytes, dialect: Dialect) -> list[list[str]]:
    """All records of `data`; the last one need not be terminated."""
    text = data.decode("utf-8", errors="replace")
    records: list[list[str]] = []
    at = 0
    while at < len(text):
        if text[at] in "\r\n":
            at += 1
            continue
        record, at = _record(text, at, dialect)
        records.append(record)
    return records


def _record(text: str, at: int, dialect: Dialect, max_fields: int | None = None) -> tuple[list[str], int]:
    fields: list[str] = []
    while True:
        field, at = _field(text, at, dialect)
        fields.append(field)
        if at >= len(text) or (max_fields is not None and len(fields) > max_fields):
            return fields, at
        if text[at] != dialect.delimiter:
            return fields, at + (2 if text.startswith("\r\n", at) else 1)
        at += 1


def _field(text: str, at: int, dialect: Dialect) -> tuple[str, int]:
    """One field and the place of the sign that ends it."""
    found: list[str] = []
    quoted = text[at : at + 1] == dialect.quote and dialect.quote is not None
    at += quoted
    plain = _plain(dialect)
    while at < len(text):
        sign = text[at]
        if run := plain.match(text, at):
            found.append(run.group())
            at = run.end()
        elif sign == dialect.escape:
            found.append(text[at + 1 : at + 2])
            at += 2
        elif quoted and sign == dialect.quote:
            doubled = text[at + 1 : at + 2] == sign
            if doubled:
                found.append(sign)
            quoted = doubled
            at += 1 + doubled
        elif not quoted and (sign == dialect.delimiter or sign in "\r\n"):
            break
        else:
            found.append(sign)
            at += 1
    return "".join(found), min(at, len(text))


@lru_cache(maxsize=64)
def _plain(dialect: Dialect) -> re.Pattern[str]:
    """A run of characters that mean nothing."""
    signs = "".join(filter(None, ("\r\n", dialect.delimiter, dialect.quote, dialect.escape)))
    return re.compile(f"[^{re.escape(signs)}]+")
