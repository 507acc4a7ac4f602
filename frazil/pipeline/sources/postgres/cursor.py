"""Cursor reads: rows whose cursor column is above the last value of the last load, less an overlap.

The next value is the greatest that the same snapshot holds, so that what is read and what is remembered agree. Values
are given at insert and become visible at commit: a transaction that was open during the last load can add rows below
its greatest value. The overlap reads that stretch again; rows that were read before are recognised by their key.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Literal

from frazil.errors import InvalidInput
from frazil.pipeline.sources.postgres.connection import DRIVER_ERRORS, identifier, literal, rows, translated
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot
from frazil.pipeline.sources.postgres.source_tables import SourceColumn, SourceTable

Nulls = Literal["skip", "include"]
_WHOLE = re.compile(r"-?[0-9]{1,19}\Z")
_MOMENT = re.compile(r"[0-9]{4,7}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(\+00)?)?( BC)?\Z")
_VALUES = {
    "int2": _WHOLE,
    "int4": _WHOLE,
    "int8": _WHOLE,
    "date": _MOMENT,
    "timestamp": _MOMENT,
    "timestamptz": _MOMENT,
}


@dataclass(frozen=True)
class CursorState:
    """How far a table was read. Kept as JSON between loads."""

    column: str
    type: str
    """The Postgres type of the column: a value of one type means nothing in another."""
    value: str | None = None
    """The greatest value read, as Postgres prints it; None before the first row."""

    def __post_init__(self) -> None:
        if self.type not in _VALUES or (self.value is not None and not _VALUES[self.type].match(self.value)):
            raise InvalidInput(
                f"{self.value!r} is not a cursor of type {self.type}",
                code="bad_cursor",
                hint="remove the state of this load to read the table from its beginning",
            )

    def to_json(self) -> str:
        return json.dumps({"column": self.column, "type": self.type, "value": self.value}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CursorState:
        try:
            found = json.loads(text)
            return cls(
                str(found["column"]), str(found["type"]), None if found["value"] is None else str(found["value"])
            )
        except (ValueError, KeyError, TypeError):
            raise InvalidInput(
                "the state of a cursor is not what was written",
                code="bad_cursor",
                hint="remove it to begin from the start",
            ) from None


@dataclass(frozen=True)
class CursorRead:
    """The condition to read with, and what to remember once its rows are published."""

    where: str
    next: CursorState
    null_rows: int
    """Rows without a cursor value: read only if they are to be included, and then each time."""


def cursor_start(table: SourceTable, column: str) -> CursorState:
    """The state before anything was read; refuses columns that cannot be a cursor."""
    found = next((one for one in table.columns if one.name == column), None)
    if found is None or found.type.name not in _VALUES or found.type.element is not None:
        raise InvalidInput(
            f"{column!r} of {table.relation} cannot be a cursor: " + _why_not(found),
            code="bad_cursor_column",
            hint="take a column of type smallint, integer, bigint, date, timestamp or timestamptz that only grows",
        )
    return CursorState(column, found.type.name)


def plan_cursor(
    snapshot: ExportedSnapshot, table: SourceTable, last: CursorState, *, overlap: float = 0, nulls: Nulls = "skip"
) -> CursorRead:
    """What to read after `last`. The overlap is in units of a number, in days of a date, in seconds of a timestamp."""
    _same_column(table, last)
    name, relation = identifier(last.column), _from(table)
    finite = "" if last.type.startswith("int") else f" AND isfinite({name})"
    try:
        greatest = rows(
            snapshot.cursor,
            f"SELECT max({name})::text AS value FROM {relation} WHERE {name} IS NOT NULL{finite}",  # noqa: S608
        )[0]["value"]
        null_rows = rows(
            snapshot.cursor,
            f"SELECT count(*) AS n FROM {relation} WHERE {name} IS NULL",  # noqa: S608
        )[0]["n"]
    except DRIVER_ERRORS as error:
        raise translated(error, snapshot.dsn, f"looking for the cursor of {table.relation}") from None
    # An infinite value would end the reading for ever, so it is no value to go on from.
    bound = _lower_bound(last, overlap)
    after = f"{name} IS NOT NULL" if bound is None else f"{name} > {bound}"
    where = f"{after} OR {name} IS NULL" if nulls == "include" else after
    return CursorRead(where, replace(last, value=_greater(last, greatest)), int(null_rows))


def _lower_bound(last: CursorState, overlap: float) -> str | None:
    """What a value must be above, as SQL of a type that an index serves; None for any value."""
    if overlap < 0:
        raise InvalidInput("an overlap cannot be negative", code="bad_overlap", hint="write 0 or more")
    if last.value is None:
        return None
    if last.type.startswith("int"):
        least = int(last.value) - int(overlap)
        return f"'{least}'::int8" if least >= -(1 << 63) else None
    if last.type == "date":
        return f"{literal(last.value)}::date - {int(overlap)}"
    return f"{literal(last.value)}::{last.type} - interval '{overlap:f} seconds'"


def _greater(last: CursorState, found: str | None) -> str | None:
    """Rows may have been deleted since: the cursor does not go back."""
    if found is None or last.value is None:
        return found if found is not None else last.value
    if last.type.startswith("int"):
        return str(max(int(last.value), int(found)))
    return max(last.value, found, key=_moment)


def _moment(text: str) -> tuple[int, tuple[int, ...], str]:
    """A key that sorts the texts that Postgres prints for moments, years before Christ and of five digits included."""
    date, _, time = text.removesuffix(" BC").removesuffix("+00").partition(" ")
    year, month, day = (int(part) for part in date.split("-"))
    return (-year if text.endswith(" BC") else year), (month, day), time


def _same_column(table: SourceTable, last: CursorState) -> None:
    now = cursor_start(table, last.column)
    if now.type != last.type:
        raise InvalidInput(
            f"the cursor {last.column!r} of {table.relation} was {last.type} and is {now.type} now",
            code="cursor_retyped",
            hint="remove the state of this load to read the table from its beginning",
        )


def _from(table: SourceTable) -> str:
    return f"ONLY {table.relation.sql}" if table.relation.kind == "r" else table.relation.sql


def _why_not(column: SourceColumn | None) -> str:
    return "there is no such column" if column is None else f"it is of type {column.declared}"
