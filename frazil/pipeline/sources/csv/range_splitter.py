"""Range splitter: cuts UTF-8 text that arrives in chunks into ranges of whole records, and reads the header."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from frazil.errors import TooLarge
from frazil.events.declaration import MAX_COLUMNS
from frazil.pipeline.sources.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.sources.csv.file_decoding import HEAD_BYTES, first_not_utf8, peek
from frazil.pipeline.sources.csv.lexer import first_record
from frazil.pipeline.sources.csv.record_boundaries import count_lines, last_end, records
from frazil.pipeline.sources.csv.sniff import looks_like_data, sniff_dialect

MAX_RANGE_LINES = 1 << 20
"""A row has about 100 bytes beside its fields, and a range is held at once: one of 16 MB in lines of two bytes would be
8 million rows and more than a gigabyte."""


class NotUtf8(Exception):
    """The text stops being UTF-8 on `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class TextCut(NamedTuple):
    offset: int
    length: int
    line: int


class RangeSplitter:
    """Reads a text once. `offset` is where it begins in the file that the cuts point into; `keep` gets every byte of it
    in order, if the cuts point into a copy."""

    def __init__(
        self,
        path: str,
        options: CsvOptions,
        *,
        offset: int = 0,
        keep: Callable[[bytes], object] | None = None,
        check_utf8: bool = True,
    ) -> None:
        self.dialect = Dialect()
        self.header: tuple[str, ...] | None = None
        self.width = 0
        self.cuts: list[TextCut] = []
        self.lines = 0
        self.unclosed = False
        self._path = path
        self._options = options
        self._offset = offset
        self._keep = keep
        self._check_utf8 = check_utf8

    def read(self, chunks: Iterable[bytes]) -> None:
        head, chunks = peek(iter(chunks), HEAD_BYTES)
        self.dialect = sniff_dialect(head[:HEAD_BYTES], self._options)
        rest = b""
        fresh: list[bytes] = []
        for chunk in chunks:
            fresh.append(chunk)
            # A long record is looked through again only when twice as much of it is there, or it is too long.
            come = sum(map(len, fresh))
            if come < len(rest) and come + len(rest) <= self._options.max_record_bytes:
                continue
            data = b"".join((rest, *fresh))
            fresh.clear()
            # A CR at the very end waits for its LF.
            end = last_end(data.removesuffix(b"\r"), self.dialect)
            if end:
                self._take(data[:end])
            rest = data[end:]
            if len(rest) > self._options.max_record_bytes:
                raise self._too_long(self.lines + 1)
        if last := b"".join((rest, *fresh)):
            self._take(last)
            self.unclosed = records(last, self.dialect).open
            self.lines += not last.endswith((b"\r", b"\n"))

    def _take(self, piece: bytes) -> None:
        """Whole records, the next ones of the text."""
        if self._check_utf8 and (wrong := first_not_utf8(piece)) is not None:
            raise NotUtf8(self.lines + 1 + count_lines(piece[:wrong]))
        if len(piece) > self._options.max_record_bytes:
            self._check_lengths(piece)
        if self._keep is not None:
            self._keep(piece)
        skipped = 0 if self.width else self._read_header(piece)
        header_lines = count_lines(piece[:skipped])
        if self.width and len(piece) > skipped:
            self._extend(TextCut(self._offset + skipped, len(piece) - skipped, self.lines + header_lines + 1))
        self._offset += len(piece)
        self.lines += header_lines + count_lines(memoryview(piece)[skipped:])

    def _extend(self, cut: TextCut) -> None:
        last = self.cuts[-1] if self.cuts else None
        if (
            last is None
            or last.length + cut.length > self._options.range_bytes
            or cut.line - last.line >= MAX_RANGE_LINES
        ):
            self.cuts.append(cut)
        else:
            self.cuts[-1] = TextCut(last.offset, last.length + cut.length, last.line)

    def _read_header(self, piece: bytes) -> int:
        """Learn the width from the first record; how many bytes of the piece are before the first row."""
        found = records(piece, self.dialect)
        if not len(found):
            return len(piece)
        start, end = int(found.starts[0]), int(found.ends[0])
        cells = first_record(piece[start:end], self.dialect, MAX_COLUMNS)
        if len(cells) > MAX_COLUMNS:
            raise TooLarge(
                f"{self._path} has more than {MAX_COLUMNS:,} columns, which is the most that a table has",
                code="too_many_columns",
                hint="give the delimiter if this is the wrong one, or split the file",
            )
        self.width = len(cells)
        has_header = self._options.header
        if looks_like_data(cells) if has_header is None else not has_header:
            return start
        self.header = tuple(cells)
        return end + (2 if piece[end : end + 2] == b"\r\n" else 1 if end < len(piece) else 0)

    def _check_lengths(self, piece: bytes) -> None:
        found = records(piece, self.dialect, self.lines + 1)
        long = (found.ends - found.starts) > self._options.max_record_bytes
        if long.any():
            raise self._too_long(int(found.lines[long][0]))

    def _too_long(self, line: int) -> TooLarge:
        return TooLarge(
            f"the record that begins on line {line:,} of {self._path} is longer than "
            f"{self._options.max_record_bytes:,} bytes",
            code="record_too_long",
            hint="usually a quote is opened and never closed; repair the file, or load it without quotes",
        )
