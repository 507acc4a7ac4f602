"""One JSON value to one column value, exactly or not at all.

Numbers come as their text (`Number`). A value that cannot be held without losing something is `Wrong`: nothing is
rounded except what float and double mean by themselves.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Hashable
from datetime import date
from decimal import Decimal
from typing import Any

from frazil.events.declaration.column_types import ColumnType
from frazil.events.decoding.json_text import JsonRefused, Number, Wrong, check_text, compact, described, shown
from frazil.events.decoding.limits import names_hint

Convert = Callable[[Any], Any]

INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)
_RANGES = {"int": INT, "long": LONG}

_PLAIN_WHOLE = re.compile(r"-?[0-9]{1,18}\Z")
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?\Z")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(Z|z|[+-][0-9]{2}:[0-9]{2})?\Z"
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
MIN_TIMESTAMP = (date(1, 1, 1).toordinal() - _EPOCH) * _DAY
MAX_TIMESTAMP = (date(9999, 12, 31).toordinal() - _EPOCH + 1) * _DAY - 1
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# No exponent of more digits is in reach of any column; it is cut before it becomes an integer.
_MAX_EXPONENT = 10**9


def converter(wanted: ColumnType) -> Convert:
    """The function from a JSON value that is not null to what Arrow stores for `wanted`."""
    if wanted.kind == "decimal":
        return lambda value: to_decimal(value, wanted.precision, wanted.scale)
    if wanted.kind == "list":
        return _list(nullable(wanted.children[0][1]))
    if wanted.kind == "struct":
        return _struct({name: nullable(child) for name, child in wanted.children})
    if wanted.kind == "map":
        return _map(wanted.children[0][1], nullable(wanted.children[1][1]))
    return _PLAIN[wanted.kind]


def nullable(wanted: ColumnType) -> Convert:
    convert = converter(wanted)
    return lambda value: None if value is None else convert(value)


def to_text(value: Any) -> str:
    if type(value) is not str:
        raise _mismatch("a text", value)
    check_text(value)
    return value


def to_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch("true or false", value)
    return value


def to_int(value: Any) -> int:
    return _whole(value, "int")


def to_long(value: Any) -> int:
    return _whole(value, "long")


def _whole(value: Any, kind: str) -> int:
    """1.0 and 1e3 are whole numbers too: JSON has only one type of number."""
    if type(value) is not Number:
        raise _mismatch(f"a whole number ({kind})", value)
    low, high = _RANGES[kind]
    if _PLAIN_WHOLE.match(value):
        number = int(value)
    else:
        sign, digits, exponent = _parts(value)
        if exponent < 0:
            raise Wrong(f"{shown(value)} is not a whole number, but the column is {kind}")
        # 19 digits hold every long, so the power of ten stays small whatever was sent.
        number = sign * int(digits) * 10**exponent if len(digits) + exponent <= 19 else sign * (high + 2)
    if not low <= number <= high:
        raise Wrong(f"{shown(value)} is out of range: {kind} has values from {low} to {high}")
    return number


def to_double(value: Any) -> float:
    return _floating(value, "double")


def to_float(value: Any) -> float:
    number = _floating(value, "float")
    try:
        struct.pack("<f", number)  # the native format would let infinity through
    except OverflowError as error:
        raise Wrong(f"{shown(value)} is out of range: the limit of float is 3.4028235e38") from error
    return number


def _floating(value: Any, kind: str) -> float:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) is not Number:
        raise _mismatch(f'a number ({kind}), "NaN", "Infinity" or "-Infinity"', value)
    # The integer -0 is 0; a negative zero is written -0.0.
    number = 0.0 if value == "-0" else float(value)
    if math.isinf(number):
        raise Wrong(f"{shown(value)} is out of range: the limit of {kind} is 1.7976931348623157e308")
    return number


def to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) is not Number and not (type(value) is str and _is_number(value)):
        raise _mismatch(f"a number or its text (decimal({precision},{scale}))", value)
    sign, digits, exponent = _parts(value)
    if digits == "0":
        return Decimal(0)
    if exponent < -scale:
        raise Wrong(
            f"{shown(value)} has {-exponent:,} digits after the point, decimal({precision},{scale}) can have {scale}"
        )
    if len(digits) + exponent > precision - scale:
        raise Wrong(
            f"{shown(value)} has {len(digits) + exponent:,} digits before the point, "
            f"decimal({precision},{scale}) can have {precision - scale}"
        )
    return Decimal(f"{'-' if sign < 0 else ''}{digits}E{exponent}")


def to_timestamp(value: Any) -> int:
    """Microseconds since 1970 in UTC."""
    if type(value) is not str:
        raise _mismatch("a timestamp such as 2024-05-01T12:00:00Z", value)
    match = _TIMESTAMP.match(value)
    if not match:
        raise Wrong(f"{shown(value)} is not a timestamp; use the format 2024-05-01T12:00:00.123456Z (RFC 3339)")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if zone is None:
        raise Wrong(f"{shown(value)} has no time zone; add Z for UTC, or an offset such as +02:00")
    if fraction and len(fraction) > 6:
        raise Wrong(f"{shown(value)} has {len(fraction)} digits after the seconds, a timestamp can have 6")
    days = _days(value, year, month, day)
    hours, minutes, seconds = int(hour), int(minute), int(second)
    offset = 0 if zone in "Zz" else _offset_minutes(value, zone)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise Wrong(f"{shown(value)} is not a valid time: the limit is 23 for hours, 59 for minutes and seconds")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    moment = days * _DAY + ((hours * 60 + minutes - offset) * 60 + seconds) * 1_000_000 + micros
    if not MIN_TIMESTAMP <= moment <= MAX_TIMESTAMP:
        raise Wrong(f"{shown(value)} is outside the years 1 to 9999 in UTC")
    return moment


def _offset_minutes(value: str, zone: str) -> int:
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise Wrong(f"{shown(value)} has an offset greater than 23:59")
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


def to_date(value: Any) -> int:
    """Days since 1970."""
    if type(value) is not str:
        raise _mismatch("a date such as 2024-05-01", value)
    match = _DATE.match(value)
    if not match:
        raise Wrong(f"{shown(value)} is not a date; use the format 2024-05-01")
    return _days(value, *match.groups())


def _days(value: str, year: str, month: str, day: str) -> int:
    try:
        return date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError as error:
        raise Wrong(f"{shown(value)} is not a valid date ({error})") from error


def to_binary(value: Any) -> bytes:
    if type(value) is not str:
        raise _mismatch("base64 text", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Wrong(f"{shown(value)} is not valid base64 ({error})") from error


def _list(convert: Convert) -> Convert:
    def to_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _mismatch("a list", value)
        found: list[Any] = []
        try:
            found.extend(map(convert, value))
        except Wrong as wrong:
            raise wrong.inside(f"[{_first_wrong(convert, value)}]") from None
        return found

    return to_list


def _first_wrong(convert: Convert, values: list[Any]) -> int:
    for index, value in enumerate(values):
        try:
            convert(value)
        except Wrong:
            return index
    raise AssertionError("one of them was wrong before")


def _struct(fields: dict[str, Convert]) -> Convert:
    def to_struct(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _mismatch("an object", value)
        found = {}
        for name, item in value.items():
            convert = fields.get(name)
            if convert is None:
                raise Wrong(
                    f"unknown field, {names_hint(name, list(fields))} (the fields of a struct are fixed)",
                    f".{shown_name(name)}",
                )
            try:
                found[name] = convert(item)
            except Wrong as wrong:
                raise wrong.inside(f".{name}") from None
        return found

    return to_struct


def _map(key_type: ColumnType, convert: Convert) -> Convert:
    convert_key = _map_key(key_type)

    def to_map(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise _mismatch("an object (map)", value)
        found: dict[Hashable, Any] = {}
        for name, item in value.items():
            try:
                key = convert_key(name)
                if key in found:
                    raise Wrong("the map has this key twice")
                found[key] = convert(item)
            except Wrong as wrong:
                raise wrong.inside(f"[{shown(name)}]") from None
        return list(found.items())

    return to_map


def _map_key(key_type: ColumnType) -> Convert:
    """The keys of a JSON object are text; a map of numbers has them in their plain form."""
    if key_type.kind not in _RANGES:
        return converter(key_type)

    def to_whole(name: str) -> int:
        if not re.match(r"(0|-?[1-9][0-9]{0,18})\Z", name):
            raise Wrong(f"{shown(name)} is not a whole number ({key_type.kind})")
        return _whole(Number(name), key_type.kind)

    return to_whole


def shown_name(name: str) -> str:
    return name if name.isidentifier() and len(name) <= 80 else shown(name)


def _mismatch(wanted: str, value: Any) -> Wrong:
    return Wrong(value.reason if type(value) is JsonRefused else f"expected {wanted}, got {described(value)}")


def _is_number(text: str) -> bool:
    match = _NUMBER.match(text)
    return bool(match and (match[2] or match[3]))


def _parts(text: str) -> tuple[int, str, int]:
    """Sign, digits without zeros at either end, and power of ten. Zero is `(1, "0", 0)`."""
    match = _NUMBER.match(text)
    if not match:
        raise Wrong(f"{shown(text)} is not a number")
    sign, whole, fraction, power = match.groups()
    fraction = fraction or ""
    exponent = 0
    if power:
        magnitude = power.lstrip("+-").lstrip("0") or "0"
        exponent = min(int(magnitude), _MAX_EXPONENT) if len(magnitude) <= 10 else _MAX_EXPONENT
        exponent = -exponent if power[0] == "-" else exponent
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    if not stripped:
        return 1, "0", 0
    return -1 if sign == "-" else 1, stripped, exponent - len(fraction) + len(digits) - len(stripped)


_PLAIN: dict[str, Convert] = {
    "string": to_text,
    "bool": to_bool,
    "int": to_int,
    "long": to_long,
    "float": to_float,
    "double": to_double,
    "date": to_date,
    "timestamp": to_timestamp,
    "binary": to_binary,
    "json": compact,
}
