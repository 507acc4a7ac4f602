"""Field text of a range: Arrow reads the fields, and the boundaries of the records are found separately.

Both count the records. A range on which they disagree is an error, because a row would be lost or get the line of
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv

from frazil.errors import FrazilError
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.record_boundaries import Ints, Mask, Records, line_records, records
from frazil.pipeline.sources.csv.text_ranges import CsvRange

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Text:
    """The records of a range. `columns` are the fields, at `positions`, of those that have the right width, which are
    the records of the numbers `kept`; `misfits` has the reason of each other one."""

    data: bytes
    records: Records
    positions: tuple[int, ...]
    columns: tuple[pa.StringArray, ...]
    kept: Ints
    misfits: Mapping[int, str]

    def field(self, position: int) -> pa.StringArray:
        return self.columns[self.positions.index(position)]

    def lines(self) -> Ints:
        """The physical line of each row of the columns."""
        return self.records.lines if not self.misfits else self.records.lines[self.kept]

    def raw(self, record: int) -> str:
        """The text of one record as it is in the file, without its line end."""
        return self.data[self.records.starts[record] : self.records.ends[record]].decode()


def read_text(
    csv_range: CsvRange, dialect: Dialect, width: int, positions: Sequence[int], null_words: Sequence[str] = ()
) -> Text:
    """The fields at these positions of all records. Unquoted, the empty field and the null words are null."""
    data = csv_range.read()
    misfits: dict[int, str] = {}

    def note(row: pa.csv.InvalidRow) -> str:
        misfits[row.number - 1] = f"{row.actual_columns:,} field{'s' * (row.actual_columns != 1)} instead of {width:,}"
        return "skip"

    def read(readable: bytes, longest: int) -> pa.Table:
        # One column is read even where none is needed: it has the number of rows.
        return _read(readable, longest, dialect, width, positions or [0], null_words, note)

    table = _tried(read, data) if not csv_range.unclosed else None
    found = line_records(data, table.num_rows + len(misfits), csv_range.line) if table is not None else None
    if found is None:
        found = records(data, dialect, csv_range.line)
    if table is None:
        misfits.clear()
        readable = data[: int(found.starts[-1])] if found.open else data
        table = read(readable, found.longest()) if len(found) > found.open else None
    if found.open:
        misfits[len(found) - 1] = "the last quote of the file is never closed"
    if table is None:
        rows, columns = 0, tuple(pa.array([], pa.string()) for _ in positions)
    else:
        rows, columns = table.num_rows, tuple(_one(column) for column in table.columns[: len(positions)])
    if rows + len(misfits) != len(found):
        raise FrazilError(
            f"{csv_range.source}: {len(found):,} records were found from line {csv_range.line:,} on, "
            f"but {rows + len(misfits):,} were read",
            code="csv_records_disagree",
            hint="nothing was published; please report this with a part of the file",
        )
    kept: Mask = np.ones(len(found), dtype=np.bool_)
    kept[list(misfits)] = False
    return Text(data, found, tuple(positions), columns, np.flatnonzero(kept), misfits)


def _tried(read: Callable[[bytes, int], pa.Table], data: bytes) -> pa.Table | None:
    """What is read without knowing how long the longest record is; None where one is longer than a block, or where
    there is none."""
    try:
        return read(data, 0)
    except pa.ArrowInvalid:
        return None


def _read(
    data: bytes,
    longest: int,
    dialect: Dialect,
    width: int,
    positions: Sequence[int],
    null_words: Sequence[str],
    on_misfit: Callable[[pa.csv.InvalidRow], str],
) -> pa.Table:
    names = [str(position) for position in range(width)]
    wanted = [names[position] for position in positions]
    return pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(
            # In one thread, rows are numbered; a block holds at least one record.
            column_names=names,
            use_threads=False,
            block_size=max(_BLOCK_BYTES, 2 * longest + 4),
        ),
        parse_options=pa.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=True,
            invalid_row_handler=on_misfit,
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=["", *null_words],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the scan has looked at every byte
        ),
    )


def _one(column: pa.ChunkedArray) -> pa.StringArray:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def flat(texts: pa.StringArray) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Where each text begins and ends, and the bytes of all of them, one behind the other."""
    _, offsets, body = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    letters = np.frombuffer(body, dtype=np.uint8) if body is not None else np.empty(0, dtype=np.uint8)
    return ends - ends[0], letters[ends[0] : ends[-1]]
