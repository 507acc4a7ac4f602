"""Column types: the type language of declarations, and the Arrow type of each.

`string bool int long float double decimal(p,s) date timestamp binary json list<T> struct<name:T,…> map<K,V>`

A timestamp has a zone and microseconds. `json` is any JSON value, kept as its compact text. Types widen as Iceberg
allows it: int → long, float → double, decimal to a greater precision of the same scale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from frazil.errors import InvalidInput

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
MAX_TYPE_DEPTH = 8

TIMESTAMP = pa.timestamp("us", "UTC")
_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "binary": pa.binary(),
    "json": pa.string(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)\Z")


@dataclass(frozen=True)
class ColumnType:
    """One type of the language. `kind` is its first word; nested types carry their parts in `children`."""

    kind: str
    precision: int = 0
    scale: int = 0
    children: tuple[tuple[str, ColumnType], ...] = ()

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{child}" for name, child in self.children) + ">"
        if self.children:
            return f"{self.kind}<" + ",".join(str(child) for _, child in self.children) + ">"
        return self.kind

    @property
    def arrow(self) -> pa.DataType:
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "list":
            return pa.list_(pa.field("element", self.children[0][1].arrow))
        if self.kind == "map":
            return pa.map_(self.children[0][1].arrow, self.children[1][1].arrow)
        if self.kind == "struct":
            return pa.struct([pa.field(name, child.arrow) for name, child in self.children])
        return _PLAIN[self.kind]

    def leaves(self) -> int:
        """How many stored columns this type makes."""
        return sum(child.leaves() for _, child in self.children) if self.children else 1

    def widens_to(self, other: ColumnType) -> bool:
        """Whether every value of this type is one of `other` without a rewrite of what is stored."""
        if self.kind == "decimal" and other.kind == "decimal":
            return other.scale == self.scale and other.precision >= self.precision
        return self == other or (self.kind, other.kind) in (("int", "long"), ("float", "double"))


def parse_type(text: str) -> ColumnType:
    """Read a type, or raise `InvalidInput` with the valid types."""
    if len(text) > 4096:
        _refuse(text)
    parsed, rest = _parse(text.strip(), 0, text)
    if rest.strip():
        _refuse(text)
    return parsed


def _parse(text: str, depth: int, whole: str) -> tuple[ColumnType, str]:
    if depth > MAX_TYPE_DEPTH:
        raise InvalidInput(
            f"the type {whole[:80]!r} is nested deeper than {MAX_TYPE_DEPTH}",
            code="type_too_deep",
            hint="flatten the type, or use json for the inner part",
        )
    text = text.lstrip()
    head = re.match(r"[a-z]+", text)
    if not head:
        _refuse(whole)
    kind, rest = head.group(), text[head.end() :]
    if kind in _PLAIN:
        return ColumnType(kind), rest
    if kind == "decimal":
        end = text.find(")") + 1
        match = _DECIMAL.match(text[:end])
        if not match:
            _refuse(whole)
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise InvalidInput(
                f"decimal({precision},{scale}) is out of range",
                hint="use a precision of 1 to 38 and a scale of 0 to the precision",
            )
        return ColumnType("decimal", precision, scale), text[end:]
    if kind in ("list", "map", "struct"):
        return _parse_nested(kind, rest, depth, whole)
    _refuse(whole)


def _parse_nested(kind: str, rest: str, depth: int, whole: str) -> tuple[ColumnType, str]:
    rest = rest.lstrip()
    if not rest.startswith("<"):
        _refuse(whole)
    children: list[tuple[str, ColumnType]] = []
    while True:
        rest = rest[1:].lstrip()
        name = {"list": "element", "map": "key" if not children else "value"}.get(kind, "")
        if kind == "struct":
            match = re.match(r"([a-z][a-z0-9_]{0,62})\s*:", rest)
            if not match:
                _refuse(whole)
            name, rest = match[1], rest[match.end() :]
        child, rest = _parse(rest, depth + 1, whole)
        children.append((name, child))
        rest = rest.lstrip()
        if not rest.startswith((",", ">")):
            _refuse(whole)
        if rest[0] == ">":
            break
    wanted = {"list": 1, "map": 2}.get(kind, len(children))
    names = [name for name, _ in children]
    if len(children) != wanted or len(set(names)) != len(names):
        _refuse(whole)
    if kind == "map" and children[0][1].kind not in ("string", "int", "long", "date", "timestamp"):
        raise InvalidInput(f"{children[0][1]} cannot be a map key", hint="use string, int, long, date or timestamp")
    return ColumnType(kind, children=tuple(children)), rest[1:]


def _refuse(text: str) -> NoReturn:
    raise InvalidInput(
        f"{text[:80]!r} is not a type",
        code="bad_type",
        hint=(
            "use string, bool, int, long, float, double, decimal(p,s), date, timestamp, binary, json, "
            "list<T>, struct<name:T,…>, map<K,V>"
        ),
    )
