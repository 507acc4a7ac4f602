"""Conversion of the texts of a column to its type, exactly or not at all.

A text fits if Arrow reads it as a value of the type, after white space around it and the plus sign of a whole number
are taken away. Hexadecimal numbers, numbers too large for a double and years outside of 1 to 9999 do not fit. All of a
column is converted at once; only if that fails, the texts that do not fit are looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration import TIMESTAMP, ColumnType
from frazil.events.decoding import INT, LONG, MAX_TIMESTAMP, MIN_TIMESTAMP, Limits, Wrong, converter, decoder, depth
from frazil.pipeline.sources.csv.field_text import flat
from frazil.pipeline.sources.csv.record_boundaries import Mask

_NAIVE = pa.timestamp("us")
_FIRST_DAY = -719_162
_LAST_DAY = 2_932_896
_ZONE = r"[T ].*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)\z"
_FINITE = r"[0-9]"
_DAY = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|[12][0-9]))"
)
_CLOCK = r"(?:[01][0-9]|2[0-3])(?::?[0-5][0-9](?::?[0-5][0-9](?:\.[0-9]{0,6})?)?)?"
_FLOAT = r"[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))"
# What a text has to look like before it is worth a conversion: everything that fits does, and hardly anything else.
_SHAPES = {
    "bool": r"(?i:true|false|0|1)",
    "int": r"[+-]?0*[0-9]{1,10}",
    "long": r"[+-]?0*[0-9]{1,19}",
    "float": _FLOAT,
    "double": _FLOAT,
    "decimal": r"[+-]?(?:0*[0-9]{0,%d}(?:\.[0-9]{0,%d}0*)?|[0-9.]+[eE][+-]?[0-9]+)",
    "date": _DAY,
    "timestamp": rf"{_DAY}(?:[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?",
}
_SPANS = {"int": INT, "long": LONG}


class TextUnfit(Exception):
    """At least one of the texts does not fit the type."""


@dataclass(frozen=True)
class Converted:
    """The values, null where a text was null, blank or did not fit; `unfit` marks the last, None if there is none."""

    values: pa.Array
    unfit: Mask | None = None


def convert_column(texts: pa.StringArray, wanted: ColumnType) -> Converted:
    """Each text as a value of the type."""
    if wanted.kind == "string":
        return Converted(texts)
    texts = _blank_as_null(texts)
    if wanted.kind not in _SHAPES:
        return _one_by_one(texts, wanted)
    try:
        return Converted(cast_exactly(texts, wanted))
    except TextUnfit:
        return _fitting(texts, wanted)


def cast_exactly(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    """All texts as values of a plain type, or `TextUnfit`."""
    try:
        return _CASTS.get(wanted.kind, _plain)(texts, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TextUnfit from error


def _plain(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    return pc.cast(texts, wanted.arrow)


def _whole(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    _, letters = flat(texts)
    # Arrow reads 0x1F as 31.
    if ((letters | 0x20) == ord("x")).any():
        raise TextUnfit
    return pc.cast(texts, wanted.arrow)


def _floating(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    values = pc.cast(texts, wanted.arrow)
    infinite = pc.is_inf(values)
    # Arrow reads 1e400 as infinity.
    if pc.any(infinite).as_py() and pc.any(pc.match_substring_regex(texts.filter(infinite), _FINITE)).as_py():
        raise TextUnfit
    return values


def _date(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    values = pc.cast(texts, wanted.arrow)
    _check_span(values.view(pa.int32()), _FIRST_DAY, _LAST_DAY)
    return values


def _timestamp(texts: pa.StringArray, wanted: ColumnType) -> pa.Array:
    values = _moments(texts)
    _check_span(values.view(pa.int64()), MIN_TIMESTAMP, MAX_TIMESTAMP)
    return values


def _moments(texts: pa.StringArray) -> pa.Array:
    """Arrow reads texts with a zone or texts without one, not both at once."""
    first = next((text for text in texts[:100] if text.is_valid), None)
    zoned = first is None or not set("Z+-").isdisjoint(first.as_py()[10:])
    with suppress(pa.ArrowInvalid):
        return pc.cast(texts, TIMESTAMP) if zoned else pc.cast(texts, _NAIVE).view(TIMESTAMP)
    with_zone = pc.match_substring_regex(texts, _ZONE)
    nothing = pa.scalar(None, pa.string())
    aware = pc.cast(pc.if_else(with_zone, texts, nothing), TIMESTAMP)
    naive = pc.cast(pc.if_else(with_zone, nothing, texts), _NAIVE).view(TIMESTAMP)
    return pc.coalesce(aware, naive)


def _check_span(values: pa.Array, low: int, high: int) -> None:
    span = pc.min_max(values)
    if span["min"].is_valid and not low <= span["min"].as_py() <= span["max"].as_py() <= high:
        raise TextUnfit


_CASTS: dict[str, Callable[[pa.StringArray, ColumnType], pa.Array]] = {
    "int": _whole,
    "long": _whole,
    "float": _floating,
    "double": _floating,
    "date": _date,
    "timestamp": _timestamp,
}


def _blank_as_null(texts: pa.StringArray) -> pa.StringArray:
    ends, _ = flat(texts)
    blanks = len(texts) - int(np.count_nonzero(np.diff(ends)))
    if blanks == texts.null_count:
        return texts
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _fitting(texts: pa.StringArray, wanted: ColumnType) -> Converted:
    """The texts that fit, and which do not."""
    trimmed = _blank_as_null(pc.ascii_trim_whitespace(texts))
    candidates = pc.if_else(pc.match_substring_regex(trimmed, _shape(wanted)), trimmed, pa.scalar(None, pa.string()))
    if wanted.kind in _SPANS:
        candidates = _within(pc.replace_substring_regex(candidates, r"\A\+", ""), *_SPANS[wanted.kind])
    values = pa.concat_arrays(_halves(candidates, wanted))
    unfit = np.asarray(pc.and_(trimmed.is_valid(), values.is_null()))
    return Converted(values, unfit if unfit.any() else None)


def _shape(wanted: ColumnType) -> str:
    shape = _SHAPES[wanted.kind]
    return rf"\A(?:{shape % (wanted.precision - wanted.scale, wanted.scale) if wanted.kind == 'decimal' else shape})\z"


def _within(texts: pa.StringArray, low: int, high: int) -> pa.StringArray:
    """The texts of whole numbers that are not too large, null for the others."""
    numbers = pc.cast(pc.replace_substring_regex(texts, r"\A(-?)0+([0-9])", r"\1\2"), pa.decimal128(38, 0))
    span = [pa.scalar(Decimal(limit), numbers.type) for limit in (low, high)]
    fitting = pc.and_(pc.greater_equal(numbers, span[0]), pc.less_equal(numbers, span[1]))
    return pc.if_else(fitting, texts, pa.scalar(None, pa.string()))


def _halves(texts: pa.StringArray, wanted: ColumnType) -> list[pa.Array]:
    """Convert what can be converted: the shape leaves few texts that cannot, and halving finds each in few steps."""
    try:
        return [cast_exactly(texts, wanted)]
    except TextUnfit:
        if len(texts) == 1:
            return [pa.nulls(1, wanted.arrow)]
        middle = len(texts) // 2
        return _halves(texts[:middle], wanted) + _halves(texts[middle:], wanted)


def _one_by_one(texts: pa.StringArray, wanted: ColumnType) -> Converted:
    """JSON, nested values as JSON, and binary as base64: the same rules as for events."""
    to_value = converter(wanted)
    unfit: Mask = np.zeros(len(texts), dtype=np.bool_)
    values: list[Any] = []
    for index, text in enumerate(texts.to_pylist()):
        value = None
        if text is not None:
            try:
                found = text if wanted.kind == "binary" else _json(text)
                value = None if found is None else to_value(found)
            except (Wrong, ValueError, RecursionError):
                unfit[index] = True
        values.append(value)
    return Converted(pa.array(values, wanted.arrow), unfit if unfit.any() else None)


def _json(text: str) -> Any:
    value = decoder.decode(text)
    if depth(value) > Limits().max_depth:
        raise Wrong("nested too deep")
    return value
