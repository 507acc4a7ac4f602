"""Result formats: JSON rows, NDJSON, CSV or an Arrow stream, up to so many rows and bytes.

It runs in a sandboxed worker: nothing is imported, opened or looked up while it runs.

What the engine returns, by DuckDB type (`arrow_lossless_conversion` off; see `duckdb_types.delivered` for the casts):
integers, booleans, floats, text, BLOB, DATE, TIME, TIME_NS, TIMESTAMP in all units, TIMESTAMPTZ, ENUM, UUID (as text),
JSON (as text), DECIMAL, LIST, ARRAY, STRUCT, MAP and UNION as they are; HUGEINT and UHUGEINT as the bits of a
decimal128(38, 0); BIT, INTERVAL, TIME WITH TIME ZONE, BIGNUM, VARIANT and GEOMETRY cast to text.

In an Arrow stream each column has the type it arrives with. HUGEINT and UHUGEINT are decimal128(38, 0), and
decimal256(39, 0) in a result with a value of 39 digits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.serving.sql.worker.duckdb_types import DuckType, parse_type
from frazil.serving.sql.worker.json_values import Cells, cells, whole_numbers

FORMATS = ("json", "ndjson", "csv", "arrow")

# Converted at once: the caps are looked at in between.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 10_000
_WIDEST_DECIMAL128 = Decimal(10**38 - 1)
_WHOLE_128 = frozenset(["HUGEINT", "UHUGEINT"])
_NEEDS_QUOTES = re.compile(r'[",\r\n]')
_ENCODER = msgspec.json.Encoder()

_Write = Callable[[list[Cells]], bytes]


@dataclass(frozen=True)
class Encoded:
    """A result, cut at the caps. `truncated`: there was more."""

    columns: list[dict[str, str]]
    row_count: int
    truncated: bool
    body: bytes


def encode(
    reader: pa.RecordBatchReader, types: Sequence[str], format: str, *, max_rows: int, max_bytes: int
) -> Encoded:
    """Read a result up to the caps and write it down; `types` are DuckDB's names of the columns' types.

    JSON gives the array of rows, each a list. NDJSON objects have distinct keys: a second `a` is `a_1`. CSV has a
    header, a null is nothing and an empty text is "". A row that does not fit into `max_bytes` is not begun.
    """
    names = list(reader.schema.names)
    columns = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
    kinds = [parse_type(kind) for kind in types]
    pieces = _Pieces(reader, max_rows)
    if format == "arrow":
        count, full, body = _arrow(pieces, reader.schema, kinds, max_bytes)
    else:
        head, write, tail = _WRITERS[format](names)
        count, full, body = _rows(pieces, kinds, write, head, tail, max_bytes)
    return Encoded(columns, count, full or pieces.more, body)


class _Pieces:
    """The batches of a result in small pieces, up to so many rows. `more` tells afterwards whether rows were left."""

    def __init__(self, reader: pa.RecordBatchReader, max_rows: int) -> None:
        self._reader = reader
        self._left = max_rows
        self.more = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            at = 0
            step = max(1, min(_PIECE_ROWS, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, 1)))
            while at < batch.num_rows:
                if self._left == 0:
                    self.more = True
                    return
                piece = batch.slice(at, min(step, self._left))
                yield piece
                at += piece.num_rows
                self._left -= piece.num_rows


def _rows(
    pieces: _Pieces, kinds: list[DuckType], write: _Write, head: bytes, tail: bytes, max_bytes: int
) -> tuple[int, bool, bytes]:
    # Each row of a JSON array ends in a comma, but for the last: where there is a tail, it takes the comma's place.
    parts, room, count, full = [head], max_bytes - len(head), 0, False
    for piece in pieces:
        columns = [cells(column, kind) for column, kind in zip(piece.columns, kinds, strict=True)]
        rows, text = piece.num_rows, write(columns)
        if len(text) > room:
            full = True
            rows = _fitting(columns, rows, write, room)
            text = write([column[:rows] for column in columns]) if rows else b""
        parts.append(text)
        room -= len(text)
        count += rows
        if full:
            break
    body = b"".join(parts)
    return count, full, (body[:-1] if tail and count else body) + tail


def _fitting(columns: list[Cells], rows: int, write: _Write, room: int) -> int:
    def size(first: int) -> int:
        return len(write([column[:first] for column in columns])) if first else 0

    return bisect_right(range(rows + 1), max(room, 0), key=size) - 1


def _json(names: list[str]) -> tuple[bytes, _Write, bytes]:
    def write(columns: list[Cells]) -> bytes:
        return _ENCODER.encode(list(zip(*columns, strict=True)))[1:-1] + b","

    return b"[", write, b"]"


def _ndjson(names: list[str]) -> tuple[bytes, _Write, bytes]:
    keys = distinct(names)

    def write(columns: list[Cells]) -> bytes:
        return _ENCODER.encode_lines([dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)])

    return b"", write, b""


def distinct(names: Sequence[str]) -> list[str]:
    """The names, each once: a repeated `a` becomes `a_1`, `a_2`, or the next that is free."""
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        key, number = name, 0
        while key in seen or (number and key in taken):
            number += 1
            key = f"{name}_{number}"
        seen.add(key)
        result.append(key)
    return result


def _csv(names: list[str]) -> tuple[bytes, _Write, bytes]:
    def write(columns: list[Cells]) -> bytes:
        rows = zip(*map(_fields, columns), strict=True)
        return ("\r\n".join(map(",".join, rows)) + "\r\n").encode()

    return (",".join(_fields(names)) + "\r\n").encode(), write, b""


def _fields(column: Cells) -> list[str]:
    sorts = set(map(type, column))
    if sorts <= {str} and "" not in column and not _NEEDS_QUOTES.search("".join(column)):
        return column
    if sorts <= {int, float}:
        return list(map(repr, column))
    return [_field(value) for value in column]


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        value = _ENCODER.encode(value).decode()
    if not isinstance(value, str):
        return "true" if value is True else "false" if value is False else repr(value)
    if value == "" or _NEEDS_QUOTES.search(value):
        return '"' + value.replace('"', '""') + '"'
    return value


_WRITERS: dict[str, Callable[[list[str]], tuple[bytes, _Write, bytes]]] = {
    "json": _json,
    "ndjson": _ndjson,
    "csv": _csv,
}


def _arrow(pieces: _Pieces, schema: pa.Schema, kinds: list[DuckType], max_bytes: int) -> tuple[int, bool, bytes]:
    kept: list[pa.RecordBatch] = []
    size, full = 0, False
    for piece in pieces:
        room = max_bytes - size
        if piece.nbytes > room:
            full = True
            piece = piece.slice(0, piece.num_rows * max(room, 0) // piece.nbytes)
        if piece.num_rows:
            kept.append(piece)
            size += piece.nbytes
        if full:
            break
    table = pa.Table.from_batches(kept, schema=schema)
    for index, kind in enumerate(kinds):
        if kind.kind in _WHOLE_128 and pa.types.is_decimal(table.schema.field(index).type):
            column = _whole_128(table.column(index), signed=kind.kind == "HUGEINT")
            table = table.set_column(index, schema.field(index).with_type(column.type), column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return table.num_rows, full, sink.getvalue().to_pybytes()


def _whole_128(column: pa.ChunkedArray, *, signed: bool) -> pa.ChunkedArray:
    ends = pc.min_max(column).as_py()
    low, high = ends["min"], ends["max"]
    if low is None or (high <= _WIDEST_DECIMAL128 and low >= (-_WIDEST_DECIMAL128 if signed else 0)):
        return column
    numbers = [number for chunk in column.chunks for number in whole_numbers(chunk, signed=signed)]
    wide = [None if number is None else Decimal(number) for number in numbers]
    return pa.chunked_array([pa.array(wide, pa.decimal256(39, 0))])
