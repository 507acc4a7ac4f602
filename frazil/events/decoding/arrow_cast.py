"""Arrow casts: columns of clients to the types of the table, losslessly or not at all."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.events.declaration.column_types import ColumnType
from frazil.events.decoding.json_text import Number, Wrong, compact, decoder, depth
from frazil.events.decoding.json_values import MAX_TIMESTAMP, MIN_TIMESTAMP, shown_name
from frazil.events.decoding.limits import Limits, names_hint, too_deep
from frazil.events.decoding.memory import UNPACKED_BYTES, python_memory

Sizes = npt.NDArray[np.int64]

_MAX_WIDTH = 1 << 20
_TAKEN = (
    *(pt.is_null, pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_decimal),
    *(pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary),
    *(pt.is_date, pt.is_timestamp, pt.is_time, pt.is_duration),
)


def check_taken(given: pa.DataType) -> None:
    """Raise `Wrong` if columns of this type are not supported. Called before any value is read.

    Arrow trusts the parameters of a type that a stream declares: a decimal with a scale of millions ends the process
    in the first cast. And types whose values can share their bytes unpack to far more than was sent; as a whole column
    they are measured first (`plain`), inside of others they are refused.
    """
    if pt.is_dictionary(given):
        given = given.value_type
        if pt.is_nested(given):
            raise Wrong("a dictionary of nested values is not supported; send the column without dictionary encoding")
    if isinstance(given, pa.BaseExtensionType):
        given = given.storage_type
    if not _is_view(given):
        _check_inner(given)


def _check_inner(given: pa.DataType) -> None:
    if pt.is_nested(given):
        if not (pt.is_struct(given) or pt.is_map(given) or _is_list(given)):
            raise Wrong(f"the Arrow type {str(given)[:200]} is not supported; use list, struct or map")
        for at in range(given.num_fields):
            _check_inner(given.field(at).type)
        return
    if pt.is_decimal(given) and not 0 <= given.scale <= given.precision <= 76:
        raise Wrong(f"a decimal with precision {given.precision} and scale {given.scale} is not supported")
    if pt.is_fixed_size_binary(given) and not 0 < given.byte_width <= _MAX_WIDTH:
        raise Wrong(f"a fixed-size binary of {given.byte_width} bytes is not supported")
    if pt.is_timestamp(given) and given.tz is not None:
        _check_zone(given.tz)
    if not any(is_kind(given) for is_kind in _TAKEN):
        raise Wrong(f"the Arrow type {str(given)[:200]} is not supported")


def _check_zone(zone: str) -> None:
    try:
        pa.lib.string_to_tzinfo(zone)
    except (ValueError, LookupError, OSError, pa.ArrowException) as error:
        raise Wrong(f"the time zone {zone[:80]!r} is unknown") from error


class Room:
    """What the columns of one stream whose values share their bytes may unpack to, together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.max_body_bytes

    def take(self, size: int) -> None:
        if size > self._left:
            raise Wrong("the decoded column is larger than the limit for a body")
        self._left -= size
        self._limits.claim(size * UNPACKED_BYTES)


def plain(array: pa.Array, room: Room) -> pa.Array:
    """The array without dictionary or extension; `Wrong` where there is no room for what it unpacks to."""
    if pt.is_dictionary(array.type):
        sizes = row_bytes(array.dictionary)
        indices = array.indices.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)
        room.take(int(sizes[indices].sum()))
        return plain(pc.cast(array, array.type.value_type), room)
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage, room)
    if _is_view(array.type):
        room.take(int(row_bytes(array).sum()))
    return array


def _is_view(given: pa.DataType) -> bool:
    return bool(pt.is_string_view(given) or pt.is_binary_view(given))


def _is_list(given: pa.DataType) -> bool:
    return any(is_kind(given) for is_kind in (pt.is_list, pt.is_large_list, pt.is_fixed_size_list))


def type_depth(given: pa.DataType) -> int:
    return 1 + max((type_depth(given.field(at).type) for at in range(given.num_fields)), default=0)


def row_bytes(array: pa.Array) -> Sizes:
    """How many bytes each row's values take, about."""
    given = array.type
    if _is_view(given):
        # The first of the four numbers of a view is its length; under a null it may be anything.
        views = np.frombuffer(array.buffers()[1], np.int32)[: (array.offset + len(array)) * 4].reshape(-1, 4)
        return np.where(np.asarray(array.is_valid()), views[array.offset :, 0], 0).astype(np.int64)
    if pt.is_struct(given):
        return sum((row_bytes(child) for child in array.flatten()), np.zeros(len(array), np.int64))
    if pt.is_map(given):
        inner = row_bytes(array.keys) + row_bytes(array.items)
        return _between(inner, np.asarray(array.offsets))
    if _is_list(given):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
        if (width := _width(given.value_type)) is not None:
            return lengths * width
        return _between(row_bytes(array.flatten()), np.concatenate(([0], np.cumsum(lengths))))
    if (width := _width(given)) is not None:
        return np.full(len(array), width, np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64)


def _width(given: pa.DataType) -> int | None:
    """The bytes of each value, where all have the same: then a list of millions is not looked at one by one."""
    if pt.is_null(given):
        return 0
    if pt.is_boolean(given):
        return 1
    if pt.is_primitive(given) or pt.is_fixed_size_binary(given) or pt.is_decimal(given):
        return int(given.bit_width) // 8
    return None


def _between(sizes: Sizes, offsets: npt.NDArray[Any]) -> Sizes:
    sums: Sizes = np.concatenate(([0], np.cumsum(sizes)))
    each: Sizes = np.diff(sums[offsets])
    return each


def cast_exact(array: pa.Array, wanted: ColumnType, limits: Limits) -> pa.Array:
    """The array in the type of the column. `Wrong` where the types do not fit, `pa.ArrowInvalid` where a value does."""
    given = array.type
    kind = wanted.kind
    if pt.is_null(given):
        return pa.nulls(len(array), wanted.arrow)
    if kind == "json":
        return _to_json_texts(array, limits)
    if kind == "list" and _is_list(given):
        return _cast_list(array, wanted, limits)
    if kind == "struct" and pt.is_struct(given):
        return _cast_struct(array, wanted, limits)
    if kind == "map" and pt.is_map(given):
        return _cast_map(array, wanted, limits)
    for fits, cast in _CASTS.get(kind, ()):
        if fits(given):
            return cast(array, wanted.arrow)
    hint = "; add a time zone to the timestamp type" if kind == "timestamp" and pt.is_timestamp(given) else ""
    raise Wrong(f"expected {wanted}, got Arrow {given}{hint}")


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type.equals(wanted) else pc.cast(array, wanted, safe=True)


def _cast_whole_to_decimal(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    # Straight from an integer, Arrow refuses a small precision whatever the values are.
    return _cast(_cast(array, pa.decimal128(20, 0)), wanted)


def _cast_timestamp(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    moments = _cast(array, wanted)
    _check_range(moments, pa.int64(), MIN_TIMESTAMP, MAX_TIMESTAMP)
    return moments


def _cast_date(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    days = _cast(array, wanted)
    _check_range(days, pa.int32(), MIN_TIMESTAMP // 86_400_000_000, MAX_TIMESTAMP // 86_400_000_000)
    return days


def _check_range(array: pa.Array, number: pa.DataType, low: int, high: int) -> None:
    found = pc.min_max(pc.cast(array, number)).as_py()
    if found["min"] is not None and not low <= found["min"] <= found["max"] <= high:
        raise pa.ArrowInvalid("the value is outside the years 1 to 9999")


def _cast_to_float(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    narrow = _cast(array, wanted)
    wide, back = _cast(array, pa.float64()), _cast(narrow, pa.float64())
    if not pc.all(pc.or_(pc.equal(back, wide), pc.is_nan(wide)), skip_nulls=True, min_count=0).as_py():
        raise pa.ArrowInvalid("the value cannot be stored exactly as float")
    return narrow


def _cast_list(array: pa.Array, wanted: ColumnType, limits: Limits) -> pa.Array:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    values = cast_exact(array.flatten(), wanted.children[0][1], limits)
    return pa.ListArray.from_arrays(offsets, values, type=wanted.arrow, mask=array.is_null())


def _cast_struct(array: pa.Array, wanted: ColumnType, limits: Limits) -> pa.Array:
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    known = [name for name, _ in wanted.children]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise Wrong(
                f"unknown or repeated field, {names_hint(name, known)} (the fields of a struct are fixed)",
                f".{shown_name(name)}",
            )
    given = dict(zip(names, array.flatten(), strict=True))
    children = []
    for name, child in wanted.children:
        try:
            children.append(
                cast_exact(given[name], child, limits) if name in given else pa.nulls(len(array), child.arrow)
            )
        except Wrong as wrong:
            raise wrong.inside(f".{name}") from None
    return pa.StructArray.from_arrays(children, fields=list(wanted.arrow), mask=array.is_null())


def _cast_map(array: pa.Array, wanted: ColumnType, limits: Limits) -> pa.Array:
    """Row by row: maps are small, and a key given twice is to be found."""
    limits.claim(python_memory(array))
    keys: list[Any] = []
    items: list[Any] = []
    offsets: list[int | None] = []  # a null offset makes its map null
    for row in array:
        offsets.append(len(keys) if row.is_valid else None)
        entries = row.as_py() or []
        if len({key for key, _ in entries}) != len(entries):
            raise Wrong("the map has a key twice")
        keys += [key for key, _ in entries]
        items += [item for _, item in entries]
    return pa.MapArray.from_arrays(
        pa.array([*offsets, len(keys)], pa.int32()),
        cast_exact(pa.array(keys, array.type.key_type), wanted.children[0][1], limits),
        cast_exact(pa.array(items, array.type.item_type), wanted.children[1][1], limits),
        type=wanted.arrow,
    )


def _to_json_texts(array: pa.Array, limits: Limits) -> pa.Array:
    """For a json column: texts are JSON already and are made compact, anything else becomes JSON."""
    limits.claim(python_memory(array))
    if _is_text(array.type):
        return pa.array(
            [None if text is None else _compact_text(text, limits) for text in array.to_pylist()], pa.string()
        )
    return pa.array([None if value is None else compact(as_json(value)) for value in to_python(array)], pa.string())


def to_python(array: pa.Array) -> list[Any]:
    """The values as Python has them, `Wrong` where it has none (a year beyond its calendar, a key given twice)."""
    try:
        return [scalar.as_py(maps_as_pydicts="strict") if scalar.is_valid else None for scalar in array]
    except (ValueError, ArithmeticError, LookupError, pa.ArrowException) as error:
        raise Wrong(f"the value cannot be written as JSON: {error}") from error


def _compact_text(text: str, limits: Limits) -> str | None:
    try:
        value = decoder.decode(text)
    except ValueError as error:
        raise Wrong(f"the text is not valid JSON: {error}") from error
    except RecursionError as error:
        raise too_deep(None, limits) from error
    # The value is inside `data`, which is inside the event.
    if text.count("{") + text.count("[") + 2 > limits.max_depth and depth(value) + 2 > limits.max_depth:
        raise too_deep(None, limits)
    return None if value is None else compact(value)


def as_json(value: Any) -> Any:
    """A Python value of Arrow as the JSON reader would have read it."""
    if value is None or type(value) is bool or type(value) is str:
        return value
    if isinstance(value, int | Decimal):
        return Number(f"{value:f}" if isinstance(value, Decimal) else value)
    if isinstance(value, float):
        if math.isfinite(value):
            return Number(repr(value))
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else compact(as_json(key)).strip('"'): as_json(item)
            for key, item in value.items()
        }
    return str(value)


def _is_text(given: pa.DataType) -> bool:
    return any(is_kind(given) for is_kind in (pt.is_string, pt.is_large_string, pt.is_string_view))


def _is_bytes(given: pa.DataType) -> bool:
    kinds = (pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary, pt.is_binary_view)
    return any(is_kind(given) for is_kind in kinds)


def _is_moment(given: pa.DataType) -> bool:
    return bool(pt.is_timestamp(given)) and given.tz is not None


def new_type(given: pa.DataType) -> ColumnType:
    """The type of an undeclared column, from its Arrow type, which is more precise than JSON."""
    if pt.is_boolean(given):
        return ColumnType("bool")
    if pt.is_integer(given):
        return ColumnType("long")
    if pt.is_floating(given):
        return ColumnType("double")
    if _is_text(given):
        return ColumnType("string")
    if _is_moment(given):
        return ColumnType("timestamp")
    if pt.is_date(given):
        return ColumnType("date")
    if pt.is_decimal128(given) and 0 <= given.scale <= given.precision:
        return ColumnType("decimal", given.precision, given.scale)
    if _is_bytes(given):
        return ColumnType("binary")
    return ColumnType("json")


_Cast = Callable[[pa.Array, pa.DataType], pa.Array]
_CASTS: dict[str, tuple[tuple[Callable[[pa.DataType], bool], _Cast], ...]] = {
    "string": ((_is_text, _cast),),
    "binary": ((_is_bytes, _cast),),
    "bool": ((pt.is_boolean, _cast),),
    "int": ((pt.is_integer, _cast), (pt.is_floating, _cast)),
    "long": ((pt.is_integer, _cast), (pt.is_floating, _cast)),
    "double": ((pt.is_floating, _cast), (pt.is_integer, _cast)),
    "float": ((pt.is_floating, _cast_to_float), (pt.is_integer, _cast)),
    "decimal": ((pt.is_decimal, _cast), (pt.is_integer, _cast_whole_to_decimal)),
    "date": ((pt.is_date, _cast_date),),
    "timestamp": ((_is_moment, _cast_timestamp),),
}
