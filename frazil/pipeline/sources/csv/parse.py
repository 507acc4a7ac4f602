"""Parser of a range: its rows, and its bad records, each with the reason.

Every record comes out once, as a row or as a bad row. The text of a record is looked up for bad ones only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration import (
    NO_CHECKS,
    Checks,
    ColumnType,
    Partition,
    check_value,
    too_long,
    unfit_for_folder,
    whole_match,
)
from frazil.events.decoding import shown
from frazil.pipeline.sources.csv.convert import convert_column
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.field_text import Text, read_text
from frazil.pipeline.sources.csv.record_boundaries import Mask
from frazil.pipeline.sources.csv.text_ranges import CsvRange

LINE = "_line"
_FEW = 100
BAD_SCHEMA = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table. `position` is its field in the file, counted from 0; None if the file has no such field,
    then it is null in every row."""

    name: str
    type: ColumnType
    position: int | None
    checks: Checks = NO_CHECKS
    partition: tuple[Partition, ...] = ()
    """What the table is partitioned by, where this column is a part of it."""


@dataclass(frozen=True)
class CellRefusal:
    """Why a record is no row; `column` is None where it is about the whole record."""

    column: str | None
    reason: str


@dataclass(frozen=True)
class Parsed:
    """`rows` has the columns of the table and `_line`; `bad` is of `BAD_SCHEMA`. Both are in the order of the file."""

    rows: pa.Table
    bad: pa.Table


def read_fields(
    csv_range: CsvRange, dialect: Dialect, width: int, columns: Sequence[TargetColumn], null_words: Sequence[str] = ()
) -> Text:
    """The fields that these columns are made of."""
    positions = sorted({column.position for column in columns if column.position is not None})
    return read_text(csv_range, dialect, width, positions, null_words)


def parse_text(
    text: Text, columns: Sequence[TargetColumn], *, refused: Mapping[int, CellRefusal] | None = None
) -> Parsed:
    """All records of a text. `refused` are lines whose records are bad for a reason that the caller knows, such as a
    value that must be unique and is in another range too."""
    judged = _Judged(text)
    if refused:
        judged.refuse_lines(refused)
    values = [_judge(column, text, judged) for column in columns]
    names = [column.name for column in columns]
    rows = pa.table([*values, pa.array(text.lines())], names=[*names, LINE])
    return Parsed(_without(rows, judged.bad), judged.table())


def _without(rows: pa.Table, bad: Mask) -> pa.Table:
    """The rows that are not bad. Around a few of them the rest is not copied."""
    gaps = np.flatnonzero(bad).tolist()
    if len(gaps) > _FEW:
        return rows.filter(pa.array(~bad))
    runs = zip([0, *(gap + 1 for gap in gaps)], [*gaps, len(bad)], strict=True)
    return pa.concat_tables([rows.slice(start, end - start) for start, end in runs])


def _judge(column: TargetColumn, text: Text, judged: _Judged) -> pa.Array:
    """The values of a column; what does not fit it is refused."""
    if column.position is None:
        given = pa.nulls(len(judged.bad), pa.string())
        values = pa.nulls(len(judged.bad), column.type.arrow)
    else:
        given = text.field(column.position)
        converted = convert_column(given, column.type)
        values = converted.values
        if converted.unfit is not None:
            judged.refuse(converted.unfit, column.name, given, f"is not of type {column.type}")
    for failed, reason in _failures(values, column.type, column.checks):
        judged.refuse(failed, column.name, given, reason)
    if column.partition and len(unfit := unfit_for_folder(column.partition, column.name, values)):
        failed = np.zeros(len(values), dtype=np.bool_)
        failed[unfit] = True
        judged.refuse(failed, column.name, given, too_long(column.partition))
    return values


def _failures(values: pa.Array, of_type: ColumnType, checks: Checks) -> Iterator[tuple[Mask, str]]:
    """For each check that any value fails: which ones, and the reason. `unique` is not checked here: it needs all
    ranges."""
    if checks.not_null and values.null_count:
        yield np.asarray(values.is_null()), "is missing, and the column must not be null"
    if of_type.kind in ("float", "double") and (checks.min is not None or checks.max is not None):
        yield from _where(pc.is_nan(values), "is in no range")
    for limit, compare, reason in (
        (checks.min, pc.less, "is below the minimum of"),
        (checks.max, pc.greater, "is above the maximum of"),
    ):
        if limit is not None:
            yield from _where(compare(values, check_value(limit, of_type)), f"{reason} {limit}")
    if checks.one_of:
        listed = pa.array([check_value(value, of_type).as_py() for value in checks.one_of], of_type.arrow)
        known = pc.or_(pc.is_in(values, listed), values.is_null())
        yield from _where(pc.invert(known), "is not one of the declared values")
    if checks.pattern is not None:
        matching = pc.match_substring_regex(values, whole_match(checks.pattern))
        yield from _where(pc.invert(matching), f"does not match the pattern {checks.pattern}")


def _where(failed: pa.BooleanArray, reason: str) -> Iterator[tuple[Mask, str]]:
    mask: Mask = np.asarray(failed.fill_null(False))
    if mask.any():
        yield mask, reason


def unique_values(parsed: Parsed, columns: Sequence[TargetColumn]) -> dict[str, pa.Table]:
    """Of each column that must be unique its values in this range, nulls left out, with their lines: `value`, `line`.
    The caller, who knows all ranges, finds those that repeat."""
    found = {}
    for column in columns:
        if column.checks.unique:
            pairs = parsed.rows.select([column.name, LINE]).rename_columns(["value", "line"])
            found[column.name] = pairs.filter(pc.is_valid(pairs["value"]))
    return found


class _Judged:
    """Which rows of a text are bad, each for the first reason that was found."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._refusals = {record: CellRefusal(None, reason) for record, reason in text.misfits.items()}
        self.bad: Mask = np.zeros(len(text.kept), dtype=np.bool_)

    def refuse(self, failed: Mask, column: str, given: pa.StringArray, reason: str) -> None:
        for row in np.flatnonzero(failed & ~self.bad).tolist():
            value = given[row].as_py()
            message = f"{shown(value)} {reason}" if value else f"the value {reason}"
            self._refusals[int(self._text.kept[row])] = CellRefusal(column, message)
        self.bad |= failed

    def refuse_lines(self, refused: Mapping[int, CellRefusal]) -> None:
        lines = self._text.lines()
        failed = np.isin(lines, np.fromiter(refused, dtype=np.int64, count=len(refused)))
        for row in np.flatnonzero(failed).tolist():
            self._refusals[int(self._text.kept[row])] = refused[int(lines[row])]
        self.bad |= failed

    def table(self) -> pa.Table:
        """The bad records, with their text as it is in the file."""
        found = sorted(self._refusals.items())
        columns = [
            self._text.records.lines[[record for record, _ in found]] if found else [],
            [refusal.column for _, refusal in found],
            [refusal.reason for _, refusal in found],
            [self._text.raw(record) for record, _ in found],
        ]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, BAD_SCHEMA, strict=True)], BAD_SCHEMA
        )
