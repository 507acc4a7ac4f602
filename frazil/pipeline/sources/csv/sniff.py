"""Dialect sniffer: delimiter, quote and header of a file, from its first records.

The delimiter is the one of `, ; tab |` that cuts the head of the file into records of the same width, the widest where
several do; at a tie the one that is rarer in texts. The quote is `"`, unless fields of the head are wrapped in `'` and
none in `"`. A backslash escapes only if the options say so.

The first record is the header, unless one of its cells looks like data: a number, a date or a timestamp. Whole numbers
from 1900 to 2100 do not count as such, since years are common names of columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from frazil.pipeline.sources.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.sources.csv.lexer import read_records

DELIMITERS = "\t|;,"
_YEARS = range(1900, 2101)
_DATA = re.compile(
    r"[+-]?(?:[0-9]+(?:[.,][0-9]+)*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?%?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?"
    r"|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}"
)


def sniff_dialect(head: bytes, options: CsvOptions) -> Dialect:
    """The dialect of a file that begins with `head` (UTF-8); what the options say is taken as it is."""
    if options.delimiter:
        return Dialect(options.delimiter, _quote(head, options.delimiter, options), options.escape)
    best = Dialect(",", _quote(head, ",", options), options.escape)
    best_score = (0.0, 1)
    for delimiter in DELIMITERS:
        if delimiter in (options.quote, options.escape) or delimiter.encode() not in head:
            continue
        dialect = Dialect(delimiter, _quote(head, delimiter, options), options.escape)
        score = _regularity(head, dialect)
        if score > best_score:
            best, best_score = dialect, score
    return best


def looks_like_data(cells: Sequence[str]) -> bool:
    """Whether a first record is a row already."""
    return any(_DATA.fullmatch(cell) and not _is_year(cell) for cell in map(str.strip, cells))


def _is_year(cell: str) -> bool:
    return len(cell) == 4 and cell.isdigit() and int(cell) in _YEARS


def _quote(head: bytes, delimiter: str, options: CsvOptions) -> str | None:
    if options.quote is not None:
        return options.quote or None
    if delimiter == '"' or options.escape == '"':
        return None
    border = rf"(?:^|$|[\r\n{re.escape(delimiter)}])"
    wrapped = {sign: len(re.findall(rf"{border}{sign}[^{sign}]*{sign}(?={border})".encode(), head)) for sign in "\"'"}
    single_only = wrapped["'"] > 1 and not wrapped['"'] and delimiter != "'" and options.escape != "'"
    return "'" if single_only else '"'


def _regularity(head: bytes, dialect: Dialect) -> tuple[float, int]:
    """The share of records that have the most common width, and that width; nothing for a single column."""
    records = read_records(head, dialect)
    # The head ends anywhere: its last record counts only if it is the only one.
    widths = Counter(len(record) for record in (records[:-1] or records))
    if not widths:
        return 0.0, 0
    width, times = max(widths.items(), key=lambda item: (item[1], item[0]))
    return (round(times / widths.total(), 2), width) if width > 1 else (0.0, 1)
