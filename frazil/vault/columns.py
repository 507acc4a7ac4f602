"""Columns of the two tables of a vault, and front matter as values of declared columns."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from frazil.errors import InvalidInput
from frazil.events.declaration import NAME, ColumnType, parse_type
from frazil.events.decoding import Wrong, converter, decoder

NOTES_KEY = ("vault", "path")
LINKS_KEY = ("vault", "path", "position")
NOTE_COLUMNS: Mapping[str, str] = {
    "vault": "string",
    "path": "string",
    "title": "string",
    "body": "string",
    "front_matter": "json",
    "front_matter_text": "string",
    "tags": "list<string>",
    "aliases": "list<string>",
    "headings": "list<struct<level:int,text:string,slug:string,line:int>>",
    "created": "timestamp",
    "updated": "timestamp",
    "content_hash": "string",
    "size": "long",
    "has_bom": "bool",
}
LINK_COLUMNS: Mapping[str, str] = {
    "vault": "string",
    "path": "string",
    "position": "int",
    "kind": "string",
    "target": "string",
    "target_path": "string",
    "anchor": "string",
    "display": "string",
    "line": "int",
}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9:.,]+ ?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?)?\Z")


class NotAValue(Exception):
    """What front matter says does not fit the column; its text is the reason."""


def parse_columns(texts: list[str]) -> dict[str, ColumnType]:
    """Columns that front matter fills, from `name=type` each."""
    columns: dict[str, ColumnType] = {}
    for text in texts:
        name, sign, kind = text.replace(":", "=", 1).partition("=") if "=" not in text else text.partition("=")
        if not sign or not NAME.match(name.strip()):
            raise InvalidInput(
                f"{text[:80]!r} is not a column", code="bad_column", hint="write NAME=TYPE, as in status=string"
            )
        if name.strip() in NOTE_COLUMNS:
            raise InvalidInput(
                f"the column {name.strip()!r} is there already", code="bad_column", hint="leave it out: it is filled"
            )
        if name.strip() in columns:
            raise InvalidInput(f"the column {name.strip()!r} is given twice", code="bad_column", hint="give it once")
        columns[name.strip()] = parse_type(kind.strip())
    return columns


def further_columns(declared: Mapping[str, Any]) -> dict[str, ColumnType]:
    """The columns of a table of notes that front matter fills: all beyond those that each such table has."""
    kinds = {name: words["type"] if isinstance(words, dict) else words for name, words in declared.items()}
    further = [name for name in kinds if name not in NOTE_COLUMNS and not name.startswith("_")]
    return {name: parse_type(kinds[name]) for name in further}


def spelled(key: str) -> str:
    """The column that a key names but for case, accents and what is between its words: `Due date` is `due_date`.

    Letters that no column has stay as they are (`日`, the `ı` of Turkish), so that such a key names no column.
    """
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", key) if not unicodedata.combining(letter))
    return re.sub(r"[\W_]+", "_", letters.casefold()).strip("_")


def keys_by_column(columns: Collection[str], front_matter: Iterable[str]) -> dict[str, list[str]]:
    """The keys that name each column: the first fills it, the others are passed over.

    That is the column's own name, then its other spellings in the order of the file. A key that is the name of a
    column is not another spelling of a second one (`a__b` and `a_b`).
    """
    found: dict[str, list[str]] = {}
    for key in front_matter:
        if key in columns:
            found.setdefault(key, []).insert(0, key)
        elif (column := spelled(key)) in columns:
            found.setdefault(column, []).append(key)
    return found


def fitted(kind: ColumnType, value: Any) -> Any:
    """A value of front matter as the column takes it, or `NotAValue`."""
    if value is None:
        return None
    if kind.kind == "timestamp":
        return moment(value)
    if kind.kind == "string" and not isinstance(value, str | dict | list):
        value = json.dumps(value)
    if kind.kind == "list" and not isinstance(value, list):
        value = [value]
    try:
        converter(kind)(decoder.decode(json.dumps(value)))
    except Wrong as wrong:
        raise NotAValue(wrong.reason) from wrong
    return value


def stored(kind: ColumnType, value: Any) -> Any:
    """A value that fits, as an answer of the table gives it back."""
    if value is None:
        return None
    text = json.dumps(value.isoformat() if isinstance(value, datetime) else value)
    return pa.scalar(converter(kind)(decoder.decode(text)), kind.arrow).as_py()


def moment(value: Any) -> datetime:
    """A date or time of front matter; without a zone it is UTC."""
    text = value.strip() if isinstance(value, str) else ""
    if not _TIME.match(text):
        raise NotAValue(f"{str(value)[:60]!r} is not a date or a time")
    try:
        found = datetime.fromisoformat(re.sub(r"(?<=[0-9]) (?=[Zz+-])", "", text).replace(",", "."))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise NotAValue(f"{text[:60]!r} is not a date or a time ({error})") from error
