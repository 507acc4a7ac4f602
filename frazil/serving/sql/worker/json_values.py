"""JSON values: the columns of a result as Python values that JSON can hold, whole columns at a time.

Numbers stay numbers with all their digits; decimals, times and uuids become text, binary becomes base64, what is not a
finite number becomes "NaN", "Infinity" or "-Infinity". Times are written by arithmetic on UTC: a worker behind its
walls can read no time zone database. Years before 1 are astronomical: 1 BC is 0000, 2 BC is -0001, as DuckDB reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.serving.sql.worker.duckdb_types import DuckType

Cells = list[Any]

Ints = npt.NDArray[np.int64]

_DAY = 86_400
_YEAR_1 = -719_162
_YEAR_10000 = 2_932_897
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INT128 = 1 << 128


def cells(column: pa.Array, kind: DuckType) -> Cells:
    """The values of a column; `kind` is the type it has in the engine."""
    for is_such, convert in _CONVERSIONS:
        if is_such(column.type):
            return convert(column, kind)
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return list(column.to_pylist())
    raise ValueError(f"no text for a column of type {column.type}")


def whole_numbers(column: pa.Array, *, signed: bool) -> list[int | None]:
    """128-bit integers, which the engine returns as the bits of a decimal."""
    if len(column) == 0:
        return []
    words = np.frombuffer(column.buffers()[1], dtype="<u8")[2 * column.offset : 2 * (column.offset + len(column))]
    numbers = [low | high << 64 for low, high in words.reshape(-1, 2).tolist()]
    if signed:
        numbers = [number - _INT128 if number >> 127 else number for number in numbers]
    return _with_nulls(numbers, column)


def _texts(column: pa.Array, kind: DuckType) -> Cells:
    texts: Cells = column.to_pylist()
    if kind.kind == "UHUGEINT":
        return [None if text is None else int(text) for text in texts]
    return texts


def _floats(column: pa.Array, kind: DuckType) -> Cells:
    # A FLOAT of 0.1 is written 0.1, not 0.10000000149011612: as text first, which is the shortest that reads back.
    wide = column if pa.types.is_float64(column.type) else column.cast(pa.string()).cast(pa.float64())
    numbers: Cells = wide.to_pylist()
    if pc.all(pc.is_finite(wide), min_count=0).as_py():
        return numbers
    return [_no_number(number) if number is not None and number - number != 0 else number for number in numbers]


def _no_number(number: float) -> str:
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def _decimals(column: pa.Array, kind: DuckType) -> Cells:
    if kind.kind in ("HUGEINT", "UHUGEINT"):
        return whole_numbers(column, signed=kind.kind == "HUGEINT")
    texts: Cells = column.cast(pa.string()).to_pylist()
    # Arrow writes small ones as 1E-10.
    return [format(Decimal(text), "f") if text is not None and "E" in text else text for text in texts]


def _binaries(column: pa.Array, kind: DuckType) -> Cells:
    return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]


def _booleans(column: pa.Array, kind: DuckType) -> Cells:
    return _with_nulls(_numbers(column.cast(pa.int8()), "i1").astype(bool).tolist(), column)


def _dates(column: pa.Array, kind: DuckType) -> Cells:
    days = _numbers(column.view(pa.int32()), "<i4")
    if _four_digit_years(days, 1):
        return list(column.cast(pa.string()).to_pylist())
    texts = np.datetime_as_string(days.astype("M8[D]"), unit="D").tolist()
    return _with_nulls(_mended(texts, days, np.iinfo(np.int32).max), column)


def _timestamps(column: pa.Array, kind: DuckType) -> Cells:
    ticks = _numbers(column.view(pa.int64()), "<i8")
    texts = _with_nulls(_mended(_clock_texts(ticks, column.type.unit), ticks, np.iinfo(np.int64).max), column)
    if column.type.tz:
        return [text if text is None or text[-1] == "y" else text + "Z" for text in texts]
    return texts


def _times(column: pa.Array, kind: DuckType) -> Cells:
    wide = column.type.bit_width == 64
    ticks = _numbers(column.view(pa.int64() if wide else pa.int32()), "<i8" if wide else "<i4").astype(np.int64)
    texts = [text[11:] for text in _clock_texts(ticks, column.type.unit)]
    for index in np.flatnonzero(ticks == _DAY * _TICKS[column.type.unit]).tolist():
        texts[index] = "24:00:00"
    return _with_nulls(texts, column)


def _clock_texts(ticks: Ints, unit: str) -> list[str]:
    """ISO 8601 without a zone; a fraction only where there is one, of six digits or of nine."""
    seconds, fractions = np.divmod(ticks, _TICKS[unit])
    if not _four_digit_years(seconds, _DAY):
        return _slow_clock_texts(seconds, fractions, unit)
    if not fractions.any():
        return _arrow_texts(seconds, "s")
    texts = _arrow_texts(ticks * 1000, "us") if unit == "ms" else _arrow_texts(ticks, unit)
    for index in np.flatnonzero(fractions == 0).tolist():
        texts[index] = texts[index][: len("2026-01-31T12:00:00")]
    return texts


def _arrow_texts(ticks: Ints, unit: str) -> list[str]:
    # Ten times as fast as NumPy, but it ends at the year 32,767.
    texts = pa.array(ticks).view(pa.timestamp(unit)).cast(pa.string()).cast(pa.binary())
    return list(pc.binary_replace_slice(texts, 10, 11, b"T").cast(pa.string()).to_pylist())


def _slow_clock_texts(seconds: Ints, fractions: Ints, unit: str) -> list[str]:
    texts: list[str] = np.datetime_as_string(seconds.astype("M8[s]"), unit="s").tolist()
    width = 9 if unit == "ns" else 6
    for index in np.flatnonzero(fractions).tolist():
        texts[index] += f".{int(fractions[index]) * 10**width // _TICKS[unit]:0{width}}"
    return texts


def _four_digit_years(numbers: npt.NDArray[Any], a_day: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= _YEAR_1 * a_day and numbers.max() < _YEAR_10000 * a_day)


def _mended(texts: list[str], numbers: npt.NDArray[Any], infinity: int) -> list[str]:
    """With four digits of a year before 0, and a word for the two values that DuckDB keeps for infinity."""
    for index in np.flatnonzero((numbers < 0) | (numbers == infinity)).tolist():
        text, number = texts[index], int(numbers[index])
        if abs(number) == infinity:
            texts[index] = "infinity" if number > 0 else "-infinity"
        elif text.startswith("-"):
            year, rest = text[1:].split("-", 1)
            texts[index] = f"-{year:0>4}-{rest}"
    return texts


def _numbers(column: pa.Array, layout: str) -> npt.NDArray[Any]:
    """The numbers of a column without a copy; 0 where there is none. (`to_numpy` would import pandas.)"""
    filled = column.fill_null(0) if column.null_count else column
    if len(filled) == 0:
        return np.empty(0, dtype=layout)
    return np.frombuffer(filled.buffers()[1], dtype=layout)[filled.offset : filled.offset + len(filled)]


def _with_nulls(values: Cells, column: pa.Array) -> Cells:
    if column.null_count:
        for index in np.flatnonzero(_numbers(column.is_null().cast(pa.int8()), "i1")).tolist():
            values[index] = None
    return values


def _enums(column: pa.Array, kind: DuckType) -> Cells:
    return cells(column.dictionary_decode(), kind)


def _lists(column: pa.Array, kind: DuckType) -> Cells:
    lengths = pc.list_value_length(column).to_pylist()
    inner = cells(column.flatten(), kind.member(0))
    lists: Cells = []
    at = 0
    for length in lengths:
        lists.append(None if length is None else inner[at : at + length])
        at += length or 0
    return lists


def _maps(column: pa.Array, kind: DuckType) -> Cells:
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = cells(column.keys.slice(first, last - first), kind.member(0))
    values = cells(column.items.slice(first, last - first), kind.member(1))
    pairs = [[key, value] for key, value in zip(keys, values, strict=True)]
    return _with_nulls([pairs[a - first : b - first] for a, b in pairwise(offsets)], column)


def _structs(column: pa.Array, kind: DuckType) -> Cells:
    names = [field.name for field in column.type]
    members = [cells(child, kind.member(index)) for index, child in enumerate(column.flatten())]
    rows = zip(*members, strict=True)
    # row(1, 'a') has no names: a list then.
    named = len(set(names)) == len(names) and all(names)
    return _with_nulls(
        [dict(zip(names, row, strict=True)) for row in rows] if named else [list(r) for r in rows], column
    )


def _unions(column: pa.Array, kind: DuckType) -> Cells:
    """`{member: value}`. Arrow does not distinguish a null member from no value at all: both are null."""
    names = [field.name for field in column.type]
    members = [cells(column.field(index), kind.member(index)) for index in range(len(names))]
    codes = column.type_codes.to_pylist()
    return [None if members[code][row] is None else {names[code]: members[code][row]} for row, code in enumerate(codes)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


_CONVERSIONS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, DuckType], Cells]]] = [
    (_is_text, _texts),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date32, _dates),
    (pa.types.is_time, _times),
    (_is_binary, _binaries),
    (pa.types.is_dictionary, _enums),
    (pa.types.is_map, _maps),
    (_is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_union, _unions),
]
