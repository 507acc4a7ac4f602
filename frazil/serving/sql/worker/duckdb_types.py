"""DuckDB types by name, and the casts of those that Arrow does not carry exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass

from frazil.events.declaration import quote_name

_BARE_NAME = re.compile(r"(\w+) (?!WITH TIME ZONE)")
_QUOTED_NAME = re.compile(r'"((?:[^"]|"")*)" ')
_LEAF = re.compile(r"[^,()\[\]']+")
_ARGUMENTS = re.compile(r"\((?:[^()']|'(?:[^']|'')*')*\)")
_BRACKETS = re.compile(r"\[(\d*)\]")
_NESTED = re.compile(r"(STRUCT|UNION|MAP)\(")

# Arrow has no such type, or DuckDB's export loses a part of it: the zone of a TIME WITH TIME ZONE, the hours of an
# INTERVAL beyond 292 years.
_AS_TEXT = frozenset(["BIT", "TIME WITH TIME ZONE", "INTERVAL", "BIGNUM", "VARIANT", "GEOMETRY"])


@dataclass(frozen=True)
class DuckType:
    """`kind` is STRUCT, UNION, MAP, LIST, ARRAY or the whole name of a plain type."""

    kind: str
    members: tuple[tuple[str | None, DuckType], ...] = ()
    size: str = ""

    def member(self, index: int) -> DuckType:
        """The type inside, where the engine's names and Arrow's agree; else one that changes nothing."""
        return self.members[index][1] if index < len(self.members) else DuckType("")


def parse_type(name: str) -> DuckType:
    """The structure of a type as `DESCRIBE` names it."""
    parsed, end = _parse(name, 0)
    return parsed if end == len(name) else DuckType(name)


def delivered(name: str) -> str | None:
    """The type to cast a result column to, so that it arrives here exactly; None where it does as it is.

    BIT, INTERVAL, TIME WITH TIME ZONE, BIGNUM, VARIANT and GEOMETRY are cast to text, also inside of lists,
    structs and maps; so is a UHUGEINT inside of something. HUGEINT and UHUGEINT columns arrive as decimal128(38, 0)
    that holds their 128 bits. A UNION with such a member is cast to text altogether.
    """
    parsed = parse_type(name)
    wanted = _delivered(parsed, inside=False)
    return wanted if wanted != _name(parsed) else None


def _delivered(wanted: DuckType, *, inside: bool) -> str:
    if wanted.kind in _AS_TEXT or (inside and wanted.kind == "UHUGEINT"):
        return "VARCHAR"
    inner = [(name, _delivered(member, inside=True)) for name, member in wanted.members]
    if wanted.kind in ("LIST", "ARRAY"):
        return f"{inner[0][1]}[{wanted.size}]"
    if wanted.kind == "MAP":
        return f"MAP({inner[0][1]}, {inner[1][1]})"
    if wanted.kind not in ("STRUCT", "UNION"):
        return wanted.kind
    changed = any(text != _name(member) for (_, text), (_, member) in zip(inner, wanted.members, strict=True))
    if changed and (wanted.kind == "UNION" or any(name is None for name, _ in inner)):
        return "VARCHAR"
    return (
        _name(wanted)
        if not changed
        else "STRUCT(" + ", ".join(f"{quote_name(name or '')} {text}" for name, text in inner) + ")"
    )


def _name(named: DuckType) -> str:
    if named.kind in ("LIST", "ARRAY"):
        return f"{_name(named.member(0))}[{named.size}]"
    if not named.members:
        return named.kind
    members = [
        _name(member) if name is None else f"{quote_name(name)} {_name(member)}" for name, member in named.members
    ]
    return f"{named.kind}({', '.join(members)})"


def _parse(text: str, at: int) -> tuple[DuckType, int]:
    nested = _NESTED.match(text, at)
    if nested:
        members, at = _members(text, nested.end(), named=nested[1] != "MAP")
        parsed = DuckType(nested[1], members)
    else:
        leaf = _LEAF.match(text, at)
        end = leaf.end() if leaf else at
        arguments = _ARGUMENTS.match(text, end)
        end = arguments.end() if arguments else end
        parsed, at = DuckType(text[at:end]), end
    while brackets := _BRACKETS.match(text, at):
        parsed = DuckType("ARRAY" if brackets[1] else "LIST", ((None, parsed),), brackets[1])
        at = brackets.end()
    return parsed, at


def _members(text: str, at: int, *, named: bool) -> tuple[tuple[tuple[str | None, DuckType], ...], int]:
    members: list[tuple[str | None, DuckType]] = []
    while at < len(text):
        quoted = _QUOTED_NAME.match(text, at) if named else None
        bare = _BARE_NAME.match(text, at) if named and not quoted else None
        found = quoted or bare
        member, end = _parse(text, found.end() if found else at)
        members.append((quoted[1].replace('""', '"') if quoted else bare[1] if bare else None, member))
        if end == at or text[end : end + 2] != ", ":
            return tuple(members), end + 1
        at = end + 2
    return tuple(members), at
