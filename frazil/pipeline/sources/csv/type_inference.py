"""Type inference: the type that all values of a column fit, decided by the sum of the facts of all ranges.

| type | the texts that fit |
|---|---|
| bool | `true` and `false`, in any case |
| long | digits, `-` before them; no leading zero, no plus sign; within 64 bits |
| decimal(p,s) | as long, with a point and digits after it; at most 38 digits in all |
| double | as decimal, with more digits or an exponent |
| date | `2024-05-01` |
| timestamp | `2024-05-01T12:00:00`, with a space instead of the T, with up to six digits of a fraction, with `Z` or an offset; without a zone it is UTC; a date among timestamps is its midnight |
| string | everything else, and a column without a value |

Fields that are null or empty fit every type. One value that fits nothing else makes the column a string: `123`, `N/A`.
"""  # noqa: E501 - rows of a table

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration import ColumnType
from frazil.pipeline.sources.csv.convert import TextUnfit, cast_exactly
from frazil.pipeline.sources.csv.field_text import flat
from frazil.pipeline.sources.csv.record_boundaries import Ints

MAX_PRECISION = 38
_COMMON_PRECISION = 18
_LONG_DIGITS = 18
_DOUBLE_DIGITS = 308
_SAMPLE_BYTES = 4096
_DAY_LETTERS = 10
# Signs by what can be written with them.
_DIGIT, _MINUS, _DOT, _EXPONENT, _PLUS, _CLOCK, _OTHER = 1, 2, 4, 8, 16, 32, 64
_SIGNS: npt.NDArray[np.uint8] = np.full(256, _OTHER, dtype=np.uint8)
for _letters, _meaning in (
    ("0123456789", _DIGIT),
    ("-", _MINUS),
    (".", _DOT),
    ("eE", _EXPONENT),
    ("+", _PLUS),
    (":TZ ", _CLOCK),
):
    _SIGNS[[ord(letter) for letter in _letters]] = _meaning
_FIXED = _DIGIT | _MINUS | _DOT
_FLOATING = _FIXED | _EXPONENT | _PLUS


class Fits(IntFlag):
    BOOL = 1
    LONG = 2
    DECIMAL = 4
    DOUBLE = 8
    DATE = 16
    TIMESTAMP = 32


_NOTHING = Fits(0)


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of the values of a column so far. `whole` and `scale` are the most digits before and after the
    point."""

    values: int = 0
    nulls: int = 0
    fits: Fits = _NOTHING
    whole: int = 0
    scale: int = 0

    def __add__(self, other: ColumnFacts) -> ColumnFacts:
        nulls = self.nulls + other.nulls
        if not self.values or not other.values:
            known = self if self.values else other
            return ColumnFacts(known.values, nulls, known.fits, known.whole, known.scale)
        return ColumnFacts(
            self.values + other.values,
            nulls,
            self.fits & other.fits,
            max(self.whole, other.whole),
            max(self.scale, other.scale),
        )


def decide(facts: ColumnFacts) -> ColumnType:
    """The narrowest type that holds every value exactly.

    A decimal gets 18 digits, or 38 where those are too few: a precision cut to the values of today would change with
    the first larger one, and up to 18 digits take the same eight bytes.
    """
    if Fits.BOOL in facts.fits:
        return ColumnType("bool")
    if Fits.LONG in facts.fits:
        return ColumnType("long")
    digits = facts.whole + facts.scale
    if Fits.DECIMAL in facts.fits and digits <= MAX_PRECISION:
        return ColumnType("decimal", _COMMON_PRECISION if digits <= _COMMON_PRECISION else MAX_PRECISION, facts.scale)
    if Fits.DOUBLE in facts.fits:
        return ColumnType("double")
    if Fits.DATE in facts.fits:
        return ColumnType("date")
    return ColumnType("timestamp" if Fits.TIMESTAMP in facts.fits else "string")


def facts_of(texts: pa.StringArray) -> ColumnFacts:
    """The facts of one column of texts."""
    everything = len(texts)
    if texts.null_count:
        texts = texts.drop_null()
    ends, letters = flat(texts)
    lengths = np.diff(ends)
    if len(lengths) and not lengths.all():
        texts = texts.filter(pa.array(lengths > 0))
        lengths = lengths[lengths > 0]
        ends = np.concatenate(([0], np.cumsum(lengths)))
    nulls = everything - len(texts)
    if not len(texts):
        return ColumnFacts(nulls=nulls)
    fits, whole, scale = _fits(texts, ends, lengths, letters)
    return ColumnFacts(len(texts), nulls, fits, whole, scale)


def _fits(texts: pa.StringArray, ends: Ints, lengths: Ints, letters: npt.NDArray[np.uint8]) -> tuple[Fits, int, int]:
    if texts[0].as_py().lower() in ("true", "false"):
        is_bool = pc.is_in(pc.ascii_lower(texts), pa.array(["true", "false"]))
        return (Fits.BOOL if pc.all(is_bool).as_py() else _NOTHING), 0, 0
    if lengths[0] >= _DAY_LETTERS and letters[4] == ord("-") and (_SIGNS[letters[:4]] == _DIGIT).all():
        return _moment(texts, lengths), 0, 0
    # Most columns of words are recognized by their first bytes.
    signs = _SIGNS[letters[:_SAMPLE_BYTES]]
    seen = int(np.bitwise_or.reduce(signs))
    if not seen & _OTHER and len(letters) > _SAMPLE_BYTES:
        seen |= int(np.bitwise_or.reduce(_SIGNS[letters]))
    if seen & _OTHER or not seen & _DIGIT:
        return _NOTHING, 0, 0
    if not seen & ~_FIXED:
        fixed = _fixed_point(texts, ends, lengths, letters, dots=bool(seen & _DOT))
        if fixed is not None:
            return fixed
    elif not seen & ~_FLOATING:
        return (Fits.DOUBLE if _floating_point(texts, ends, lengths, letters) else _NOTHING), 0, 0
    return _NOTHING, 0, 0


def _moment(texts: pa.StringArray, lengths: Ints) -> Fits:
    """What texts fit of which the first begins like a date, and so is nothing else."""
    shortest = lengths.min()
    if shortest == lengths.max() == _DAY_LETTERS and _fits_type(texts, "date"):
        return Fits.DATE | Fits.TIMESTAMP
    return Fits.TIMESTAMP if shortest >= _DAY_LETTERS and _fits_type(texts, "timestamp") else _NOTHING


def _fixed_point(
    texts: pa.StringArray, ends: Ints, lengths: Ints, letters: npt.NDArray[np.uint8], *, dots: bool
) -> tuple[Fits, int, int] | None:
    """What texts of digits, minus and point fit, if each of them is a number."""
    starts = ends[:-1]
    minus = (letters[starts] == ord("-")).astype(np.int64)
    if np.count_nonzero(letters == ord("-")) != minus.sum():
        return None
    whole, scale = lengths - minus, np.zeros(1, dtype=np.int64)
    if dots:
        dot = pc.find_substring(texts, ".").to_numpy(zero_copy_only=False).astype(np.int64)
        pointed = dot >= 0
        if np.count_nonzero(letters == ord(".")) != np.count_nonzero(pointed):
            return None
        whole = np.where(pointed, dot - minus, whole)
        scale = np.where(pointed, lengths - dot - 1, 0)
    most_whole, most_scale = int(whole.max()), int(scale.max())
    if int((whole + scale).min()) < 1:
        return None
    leading = letters[np.minimum(starts + minus, len(letters) - 1)] == ord("0")
    if (leading & (whole > 1)).any():
        return None
    fits = Fits.DECIMAL | Fits.DOUBLE if most_whole <= _DOUBLE_DIGITS else Fits.DECIMAL
    if not dots and (most_whole <= _LONG_DIGITS or (most_whole == _LONG_DIGITS + 1 and _fits_type(texts, "long"))):
        fits |= Fits.LONG
    return fits, most_whole, most_scale


def _floating_point(texts: pa.StringArray, ends: Ints, lengths: Ints, letters: npt.NDArray[np.uint8]) -> bool:
    """Whether texts with exponents are numbers, none with a plus sign or a zero before it."""
    starts = ends[:-1]
    minus = (letters[starts] == ord("-")).astype(np.int64)
    first = letters[np.minimum(starts + minus, len(letters) - 1)]
    second = _SIGNS[letters[np.minimum(starts + minus + 1, len(letters) - 1)]]
    leading = (first == ord("0")) & (second == _DIGIT) & (lengths - minus > 1)
    return not leading.any() and not (first == ord("+")).any() and _fits_type(texts, "double")


def _fits_type(texts: pa.StringArray, kind: str) -> bool:
    try:
        cast_exactly(texts, ColumnType(kind))
    except TextUnfit:
        return False
    return True
