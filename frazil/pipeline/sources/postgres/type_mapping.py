"""Type mapping: how a column of each Postgres type is selected, and its type in the lake.

The type on our side follows from the declaration alone, never from the values: tonight's archive has the columns of
last night's. A value that the declared type allows and ours cannot hold (NaN in numeric(10,2), an infinite date) is an
error that names the column, unless the source says otherwise. docs/postgres-types.md lists all types.

What the driver reads exactly is selected as it is; anything else as the text that Postgres itself prints for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frazil.events.declaration import ColumnType

Otherwise = Literal["error", "null"]
Infinity = Literal["error", "null", "clamp"]
MOST_DIGITS = 38


@dataclass(frozen=True)
class LossPolicy:
    """What to do with values that our type cannot hold."""

    nan: Otherwise = "error"
    infinity: Infinity = "error"
    nested_arrays: Otherwise = "error"


@dataclass(frozen=True)
class PgType:
    """The type of a column with its domains resolved to what they are made of."""

    name: str
    sql: str
    """Its full name, quoted, for a cast."""
    kind: str = "b"
    """`pg_type.typtype`: b(ase), e(num), c(omposite), r(ange), m(ultirange)."""
    modifier: int = -1
    element: PgType | None = None
    dimensions: int = 0
    """As declared; Postgres does not enforce it."""
    was_domain: bool = False


@dataclass(frozen=True)
class ColumnMapping:
    """How a column is read. Both expressions have `{}` where the column's name goes."""

    expression: str
    type: ColumnType
    guard: str | None = None
    """True for rows whose value does not survive: an array of more dimensions than its declaration."""


STRING, JSON = ColumnType("string"), ColumnType("json")

# casts in SQL, one after the other, and what comes of it
_RULES: dict[str, tuple[tuple[str, ...], str]] = {
    "int2": ((), "int"),
    "int4": ((), "int"),
    "int8": ((), "long"),
    "float4": ((), "float"),
    "float8": ((), "double"),
    "bool": ((), "bool"),
    "text": ((), "string"),
    "varchar": ((), "string"),
    "bpchar": ((), "string"),
    "name": ((), "string"),
    "bytea": ((), "binary"),
    "date": ((), "date"),
    "timestamp": ((), "timestamp"),
    "timestamptz": ((), "timestamp"),
    "json": ((), "json"),
    "jsonb": ((), "json"),
    # Sent as bytes and printed here.
    "uuid": ((), "string"),
    # The driver reads an oid as a signed number of 32 bits and a money as its cents.
    "oid": (("int8",), "long"),
    "money": (("numeric", "text"), "string"),
}
_AS_TEXT = (("text",), "string")
# Lists by their type and arrays by their printing: their elements start at 0.
_VECTORS = ("int2vector", "oidvector")


def map_type(pg: PgType) -> ColumnMapping:
    """How to read a column of this type."""
    if pg.element is not None and pg.name not in _VECTORS:
        return _reading_of_array(pg, pg.element)
    if pg.kind == "c":
        return ColumnMapping("to_json({})", JSON)
    if pg.name == "hstore":
        return ColumnMapping("{}::json", JSON)
    casts, target = _scalar(pg)
    return ColumnMapping("{}" + "".join(f"::{cast}" for cast in casts), target)


def _reading_of_array(pg: PgType, element: PgType) -> ColumnMapping:
    if pg.dimensions > 1 or element.element is not None or element.kind == "c" or element.name == "hstore":
        return ColumnMapping("to_json({})", JSON)
    casts, target = _scalar(element)
    if target.kind == "json":
        casts = ("text",)
    if element.was_domain:
        casts = (element.sql, *casts)
    cast = "{}" + "".join(f"::{cast}[]" for cast in casts)
    # A slice of everything begins at 1; the driver refuses arrays that begin elsewhere, and runs the rows of one with
    # two dimensions together.
    return ColumnMapping(f"({cast})[:]", ColumnType("list", children=(("element", target),)), "array_ndims({}) > 1")


def _scalar(pg: PgType) -> tuple[tuple[str, ...], ColumnType]:
    if pg.name == "numeric" and pg.kind == "b":
        # The driver's own reader of numeric takes 0.75 µs a value. Printed by Postgres (0.2 µs) and read as text
        # (0.25 µs) it is cheaper [m]; so it is than the bytes of `numeric_send`, put together by numpy [m].
        return ("text",), _decimal(pg.modifier) or STRING
    casts, kind = _RULES.get(pg.name, _AS_TEXT) if pg.kind == "b" else _AS_TEXT
    return casts, ColumnType(kind)


def _decimal(modifier: int) -> ColumnType | None:
    """numeric(p,s) of a type modifier; None without one, or where more digits are declared than a decimal has."""
    if modifier < 4:
        return None
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    # From Postgres 15 on numeric(3,-2) is a number of hundreds, and numeric(2,4) has two zeros after its point.
    digits = max(precision - min(scale, 0), scale)
    return ColumnType("decimal", digits, max(scale, 0)) if digits <= MOST_DIGITS else None
