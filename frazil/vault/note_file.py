"""Note file: a row as the bytes that it was read from, or as a new file with the same content."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from frazil.events.declaration import ColumnType
from frazil.vault import front_matter
from frazil.vault.columns import stored
from frazil.vault.note import BOM, Note, Row, parse

_KEYS = ("title", "tags", "aliases", "created", "updated")
_MEANT = ("body", "front_matter", *_KEYS)


def file_of(row: Mapping[str, Any], further: Mapping[str, ColumnType]) -> tuple[bytes, list[str]]:
    """The bytes of a row's file, and the columns that will not be read back from it as they are.

    The front matter of the file that the row came from is used if it says what the row says; a row that was changed by
    another producer, or made by one, gets a block of its own.
    """
    wanted = _meaning(row, further)
    body, text = wanted["body"], row.get("front_matter_text")
    bom = BOM if row.get("has_bom") else ""
    if text is not None and front_matter.split(text + body) == (text, body):
        raw = f"{bom}{text}{body}".encode()
        if not _differences(wanted, parse(row["path"], raw, further), further, exactly=True):
            return raw, []
    raw = f"{bom}{_block(wanted, row['path'], further)}{body}".encode()
    return raw, _differences(wanted, parse(row["path"], raw, further), further, exactly=False)


def _meaning(row: Mapping[str, Any], further: Mapping[str, ColumnType]) -> Row:
    """What the row says for itself; headings, hash and size follow from it."""
    meaning = {column: row.get(column) for column in (*_MEANT, *further)}
    meaning["body"] = meaning["body"] or ""
    if isinstance(meaning["front_matter"], str):
        meaning["front_matter"] = _from_json(meaning["front_matter"])
    return meaning


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a number of thousands of digits
        return text


def _differences(wanted: Row, note: Note, further: Mapping[str, ColumnType], *, exactly: bool) -> list[str]:
    """The columns that the row gives and the note says otherwise.

    A block that was made for the row may say more: front matter then has the columns too, and the tags of the body
    count among the row's.
    """
    read = note.row("")
    found = []
    for column, value in wanted.items():
        if value is None:
            continue
        there = stored(further[column], read[column]) if column in further else read[column]
        if column == "front_matter" and not exactly and isinstance(value, dict) and isinstance(there, dict):
            same = all(key in there and there[key] == item for key, item in value.items())
        elif column == "tags" and not exactly:
            same = set(value) <= set(there)
        else:
            same = bool(value == there)
        if not same:
            found.append(column)
    return found


def _block(wanted: Row, path: str, further: Mapping[str, ColumnType]) -> str:
    """The row's front matter, with keys for the columns that neither it nor the body nor the file's name says."""
    given, body = wanted["front_matter"], wanted["body"]
    values: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    parsed = parse(path, (front_matter.dump(values) + body).encode(), further)
    for column in _differences(wanted, parsed, further, exactly=False):
        value = wanted[column]
        if column == "tags":
            value = [tag for tag in value if tag not in parsed.contents.tags]
        # Under its own name, which counts before any other key that names it (`STATUS`, `date`): that one stays.
        if column in further:
            values[column] = _in_yaml(further[column], value)
        elif column in _KEYS:
            values[column] = _plain(value)
    needs_none = not values and given is None and not body.startswith(BOM) and front_matter.split(body)[0] == ""
    return "" if needs_none else front_matter.dump(values)


def _in_yaml(kind: ColumnType, value: Any) -> Any:
    if kind.kind == "json":
        return _from_json(value)
    if kind.kind == "map":
        return {str(key): _plain(item) for key, item in value}
    return _plain(value)


def _plain(value: Any) -> Any:
    """A value of an answer in the form in which front matter takes it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
