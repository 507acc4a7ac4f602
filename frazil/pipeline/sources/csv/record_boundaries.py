"""Record boundaries of a piece of CSV, found on whole arrays.

The piece begins at the beginning of a record. A line end inside of quotes ends no record; which ones those are follows
from the number of quotes before them, as long as every quote opens at the beginning of a field and closes at its end.
Where one does not (`5" pipe`, `"a"b`), or where a sign escapes others, a loop goes from quote to quote and decides for
each what it means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from frazil.pipeline.sources.csv.dialect import Dialect

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_LF, _CR = 10, 13
_PART_BYTES = 256 << 10
_NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Records:
    """The records of a piece, blank lines left out: byte `starts` and `ends` (without the line end), and the physical
    line on which each begins. `open` says that the last one ends inside of quotes."""

    starts: Ints
    ends: Ints
    lines: Ints
    open: bool

    def __len__(self) -> int:
        return len(self.starts)

    def longest(self) -> int:
        return int((self.ends - self.starts).max()) if len(self) else 0


@dataclass(frozen=True)
class _Quoted:
    """The stretches inside of quotes, and single places that an escape takes away their meaning. `closes` is one
    shorter than `opens` if the last stretch does not end."""

    opens: Ints
    closes: Ints
    escaped: Ints

    @property
    def open(self) -> bool:
        return len(self.opens) > len(self.closes)

    def outside(self, places: Ints) -> Mask:
        before = np.searchsorted(self.opens, places)
        closes = np.append(self.closes, np.iinfo(np.int64).max) if self.open else self.closes
        outside: Mask = before == 0
        inner = np.flatnonzero(~outside)
        outside[inner] = places[inner] > closes[before[inner] - 1]
        if len(self.escaped):
            outside &= ~np.isin(places, self.escaped)
        return outside


def line_records(data: bytes, count: int, first_line: int = 1) -> Records | None:
    """The records of a piece that has so many of them, if each is a line of its own, in a third of the time.

    A record ends at a line end or at the end of the piece, and the piece does not end inside of quotes: there are only
    as many of both if no line is blank and no line end stands inside of a record.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    parts = [np.flatnonzero(view[at : at + _PART_BYTES] == _LF) + at for at in range(0, len(view), _PART_BYTES)]
    ends = np.concatenate(parts if data.endswith(b"\n") else [*parts, [len(data)]])
    if len(ends) != count:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    if b"\r" in data:
        if data.count(b"\r") != data.count(b"\r\n"):
            return None
        ends -= (view[ends - 1] == _CR) & (ends < len(data))
    return Records(starts, ends, np.arange(first_line, first_line + count, dtype=np.int64), False)


def records(data: bytes, dialect: Dialect, first_line: int = 1) -> Records:
    """All records of a piece, whose first byte is on `first_line`.

    It goes through the piece in parts that fit into the cache of a core, which takes a third of the time.
    """
    starts: list[Ints] = []
    ends: list[Ints] = []
    lines: list[Ints] = []
    at, size, line, unclosed = 0, _PART_BYTES, first_line, False
    while at < len(data):
        part = data[at : at + size]
        final = at + size >= len(data)
        found, length, breaks = _records(part, dialect, line, final=final)
        if not length:
            size *= 2
            continue
        starts.append(found.starts + at)
        ends.append(found.ends + at)
        lines.append(found.lines)
        unclosed = found.open and final
        at, size, line = at + length, _PART_BYTES, line + breaks
    if not starts:
        return Records(_NONE, _NONE, _NONE, False)
    return Records(np.concatenate(starts), np.concatenate(ends), np.concatenate(lines), unclosed)


def _records(data: bytes, dialect: Dialect, first_line: int, *, final: bool) -> tuple[Records, int, int]:
    """The records that end in a part (all of them in the final one), the bytes and the line ends they take."""
    view = np.frombuffer(data, dtype=np.uint8)
    breaks = line_breaks(data)
    if not final and len(breaks) and breaks[-1] == len(data) - 1 and data.endswith(b"\r"):
        breaks = breaks[:-1]  # its LF may be in the next part
    quoted = _quoted(data, view, dialect)
    ending = breaks if quoted is None else breaks[quoted.outside(breaks)]
    length = len(data) if final else int(ending[-1]) + 1 if len(ending) else 0
    starts = np.concatenate(([0], ending + 1))
    ends = np.append(ending, len(data))
    if b"\r" in data and len(ending):
        crlf = (view[ending] == _LF) & (view[np.maximum(ending - 1, 0)] == _CR)
        if quoted is not None and len(quoted.escaped):
            crlf &= ~np.isin(ending - 1, quoted.escaped)
        ends[:-1] -= crlf
    if not final:
        starts, ends = starts[:-1], ends[:-1]
    if len(ending) == len(breaks):
        lines = np.arange(first_line, first_line + len(starts), dtype=np.int64)
    else:
        lines = first_line + np.searchsorted(breaks, starts).astype(np.int64)
    kept = ends > starts
    if not kept.all():
        starts, ends, lines = starts[kept], ends[kept], lines[kept]
    unclosed = quoted is not None and quoted.open
    return Records(starts, ends, lines, unclosed), length, int(np.searchsorted(breaks, length))


def last_end(data: bytes, dialect: Dialect) -> int:
    """The end of the last record that is terminated in this piece, line end included; 0 if none is."""
    view = np.frombuffer(data, dtype=np.uint8)
    quoted = _quoted(data, view, dialect)
    end = _last_break(data, len(data))
    if quoted is None:
        return end + 1
    # Seldom is the last line end a quoted one, and then the one before the quote is mostly not.
    for _ in range(0 if len(quoted.escaped) else 4):
        opened = int(np.searchsorted(quoted.opens, end)) - 1
        if opened < 0 or (opened < len(quoted.closes) and quoted.closes[opened] < end):
            return end + 1
        end = _last_break(data, int(quoted.opens[opened]))
    breaks = line_breaks(data)
    ending = breaks[quoted.outside(breaks)]
    return int(ending[-1]) + 1 if len(ending) else 0


def count_lines(data: bytes | memoryview) -> int:
    """The physical line ends in `data`, CRLF as one."""
    view = np.frombuffer(data, dtype=np.uint8)
    count = int(np.count_nonzero(view == _LF))
    carriage = view == _CR
    if carriage.any():
        count += int(np.count_nonzero(carriage)) - int(np.count_nonzero(carriage[:-1] & (view[1:] == _LF)))
    return count


def line_breaks(data: bytes) -> Ints:
    """The last byte of each line end."""
    view = np.frombuffer(data, dtype=np.uint8)
    feeds = np.flatnonzero(view == _LF)
    if b"\r" not in data:
        return feeds
    returns = np.flatnonzero(view == _CR)
    followed = view[np.minimum(returns + 1, len(view) - 1)] == _LF
    alone = returns[~followed]
    return np.sort(np.concatenate((feeds, alone))) if len(alone) else feeds


def _last_break(data: bytes, end: int) -> int:
    return max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end))


def _quoted(data: bytes, view: Bytes, dialect: Dialect) -> _Quoted | None:
    """What is quoted or escaped in this piece; None if nothing is."""
    quote, escape = dialect.quote, dialect.escape
    escapes = escape is not None and escape.encode() in data
    if not escapes and (quote is None or quote.encode() not in data):
        return None
    quotes = np.flatnonzero(view == ord(quote)) if quote is not None else _NONE
    if escapes:
        assert escape is not None
        quotes = np.flatnonzero((view == ord(escape)) | (view == ord(quote or escape)))
        return _quoted_exactly(data, quotes, dialect)
    opens, closes = quotes[0::2], quotes[1::2]
    border = _table(dialect.delimiter, "\r", "\n", quote)
    well_opened = border[view[opens - 1]] | (opens == 0)
    well_closed = border[view[np.minimum(closes + 1, len(view) - 1)]] | (closes == len(view) - 1)
    if well_opened.all() and well_closed.all():
        return _Quoted(opens, closes, _NONE)
    return _quoted_exactly(data, quotes, dialect)


def _quoted_exactly(data: bytes, signs: Ints, dialect: Dialect) -> _Quoted:
    """Goes from sign to sign (quotes and escapes), about ten million a second."""
    quote = ord(dialect.quote) if dialect.quote else -1
    escape = ord(dialect.escape) if dialect.escape else -1
    begins_field = _table(dialect.delimiter, "\r", "\n").tolist()
    opens: list[int] = []
    closes: list[int] = []
    escaped: list[int] = []
    inside = False
    resume = 0
    last_escaped = -1
    for place in signs.tolist():
        if place < resume:
            continue
        if data[place] == escape:
            last_escaped = place + 1
            escaped.append(last_escaped)
            resume = place + 2
        elif not inside:
            if place == 0 or (begins_field[data[place - 1]] and last_escaped != place - 1):
                opens.append(place)
                inside = True
        elif place + 1 < len(data) and data[place + 1] == quote:
            resume = place + 2
        else:
            closes.append(place)
            inside = False
    return _Quoted(*(np.array(found, dtype=np.int64) for found in (opens, closes, escaped)))


def _table(*signs: str | None) -> Mask:
    table = np.zeros(256, dtype=np.bool_)
    table[[ord(sign) for sign in signs if sign is not None]] = True
    return table
