"""Time travel in a statement: `FOR VERSION AS OF 7`, `FOR TIMESTAMP AS OF '…'`, `FOR SYSTEM_TIME AS OF '…'`.

DuckDB knows `AT (VERSION => 7)` and `AT (TIMESTAMP => '…')` only. The other forms are rewritten to these by the words
of the text (never inside a string, a comment or a quoted name), and what results is judged like any statement. `at_of`
then reads the clause from the parse tree.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import duckdb

from frazil.serving.sql.refusals import BadSql
from frazil.serving.sql.statement.syntax_tree import Node

_WORD = re.compile(rb"[A-Za-z_]+")
_NUMBER = re.compile(rb"\d+")
_STRING = re.compile(rb"'(?:[^']|'')*'")
_ALIAS = re.compile(rb'"(?:[^"]|"")*"|[A-Za-z_\x80-\xff][\w$\x80-\xff]*')
_UNITS = {b"VERSION": b"VERSION", b"TIMESTAMP": b"TIMESTAMP", b"SYSTEM_TIME": b"TIMESTAMP"}
# What may stand between `AS OF` and the text of a time.
_TIME_WORDS = frozenset([b"TIMESTAMP", b"TIMESTAMPTZ", b"DATE", b"WITH", b"TIME", b"ZONE"])
_TIME_TYPES = frozenset(["TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE", "VARCHAR"])
_LITERALS = frozenset(["INTEGER", "BIGINT", "VARCHAR"])
_HINT = "write AT (VERSION => 123) with a snapshot id, or AT (TIMESTAMP => '2026-01-31T12:00:00Z') with a time"
_Tokens = list[tuple[int, duckdb.token_type]]
_MAX_ID = (1 << 63) - 1


def with_at_clauses(sql: str) -> str:
    """The same text with each `FOR … AS OF …` written as `AT (… => …)`."""
    text = sql.encode()
    if b"OF" not in text.upper():
        return sql
    tokens = duckdb.tokenize(sql)
    words = [_word(text, start) for start, _ in tokens]
    pieces, done = [], 0
    for index in range(len(tokens) - 3):
        unit = _UNITS.get(words[index + 1])
        if words[index] != b"FOR" or unit is None or words[index + 2 : index + 4] != [b"AS", b"OF"]:
            continue
        value = index + 4
        while value < len(tokens) and words[value] in _TIME_WORDS:
            value += 1
        literal = _literal(text, tokens[value][0]) if value < len(tokens) else None
        if literal is None:
            raise BadSql("FOR … AS OF needs a number or a time in quotes behind it", hint=_HINT)
        alias = _alias(text, tokens[value + 1 : value + 3])
        pieces.append(text[done : tokens[index][0]])
        if alias:
            pieces += [b"AS ", alias.group(), b" "]
        pieces += [b"AT (", unit, b" => ", literal.group(), b")"]
        done = (alias or literal).end()
    return b"".join([*pieces, text[done:]]).decode()


def _word(text: bytes, start: int) -> bytes:
    word = _WORD.match(text, start)
    return word.group().upper() if word else b""


def _literal(text: bytes, start: int) -> re.Match[bytes] | None:
    return _STRING.match(text, start) or _NUMBER.match(text, start)


def _alias(text: bytes, tokens: _Tokens) -> re.Match[bytes] | None:
    """The table's other name, which stands behind `FOR … AS OF …` but before `AT (…)`."""
    if tokens and _word(text, tokens[0][0]) == b"AS":
        return _ALIAS.match(text, tokens[1][0]) if len(tokens) > 1 else None
    bare = tokens and tokens[0][1] == duckdb.token_type.identifier
    return _ALIAS.match(text, tokens[0][0]) if bare else None


def at_of(clause: Node) -> tuple[int | None, datetime | None]:
    """The snapshot id or the time that an AT clause names; a time without a zone is meant in UTC."""
    value = _constant(clause["expr"])
    unit = clause["unit"].upper()
    if unit == "VERSION":
        digits = value if isinstance(value, str) else str(value) if type(value) is int else ""
        if not re.fullmatch(r"[0-9]{1,19}", digits) or int(digits) > _MAX_ID:
            raise BadSql("a version is the id of a snapshot, a whole number", hint=_HINT)
        return int(digits), None
    if unit != "TIMESTAMP" or not isinstance(value, str):
        raise BadSql("a table is read AT a VERSION or AT a TIMESTAMP in quotes", hint=_HINT)
    return None, _time(value)


def _constant(expression: Node) -> object:
    if expression["class"] == "CAST" and expression["cast_type"]["id"] in _TIME_TYPES:
        expression = expression["child"]
    # A decimal is a whole number too in the tree, with its point left out.
    literal = expression["class"] == "CONSTANT" and expression["value"]["type"]["id"] in _LITERALS
    if not literal or expression["value"]["is_null"]:
        raise BadSql("the snapshot or the time behind AT must be written out: a number or a text", hint=_HINT)
    return expression["value"]["value"]


def _time(text: str) -> datetime:
    try:
        if len(text) == len("2026-01-31"):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadSql(f"not a time: {text[:40]!r}", hint=_HINT) from error
