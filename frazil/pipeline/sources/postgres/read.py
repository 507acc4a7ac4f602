"""Range reader: one range of a table as Arrow batches, by binary COPY, in the process of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager import Error as DriverError
from adbc_driver_manager.dbapi import Cursor

from frazil.errors import InvalidInput
from frazil.events.declaration import ColumnType
from frazil.pipeline.sources.postgres.connection import (
    DRIVER_ERRORS,
    Timeouts,
    begin,
    configure_session,
    connect,
    cursor_of,
    identifier,
    translated,
)
from frazil.pipeline.sources.postgres.convert import ValueUnfit, converted
from frazil.pipeline.sources.postgres.dsn import Dsn
from frazil.pipeline.sources.postgres.exported_snapshot import lost
from frazil.pipeline.sources.postgres.source_tables import SourceRelation, SourceTable
from frazil.pipeline.sources.postgres.table_ranges import Range
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy, map_type

_INVALID_SNAPSHOT = ("22023", "42704")


@dataclass(frozen=True)
class ColumnPlan:
    source: str
    target: str
    declared: str
    type: ColumnType
    expression: str
    """SQL that gives the value."""
    guard: str | None
    """SQL that is true where the value would be changed by reading it."""


@dataclass(frozen=True)
class TablePlan:
    """How a table is read; goes to every task that reads a range of it."""

    relation: SourceRelation
    columns: tuple[ColumnPlan, ...]
    loss_policy: LossPolicy
    where: str = ""
    """A further condition on the rows, as SQL."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.target, column.type.arrow) for column in self.columns])

    def statement(self, within: Range) -> str:
        """The SELECT of a range: the columns in order, then the guards."""
        guards = [column.guard for column in self.columns if column.guard]
        selected = ", ".join(f"{sql} AS c{at}" for at, sql in enumerate([c.expression for c in self.columns] + guards))
        conditions = [f"({one})" for one in (within.condition, self.where) if one]
        only = "ONLY " if within.relation.kind == "r" else ""
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {selected} FROM {only}{within.relation.sql}{where}"  # noqa: S608


def plan_table(
    table: SourceTable, clean: Callable[[str], str], loss_policy: LossPolicy | None = None, *, where: str = ""
) -> TablePlan:
    """The plan of a table, its columns named by `clean`. Two columns that get the same name are refused."""
    columns: list[ColumnPlan] = []
    names: dict[str, str] = {}
    for column in table.columns:
        target = clean(column.name)
        if target in names:
            raise InvalidInput(
                f"the columns {names[target]!r} and {column.name!r} of {table.relation} are both named {target!r}",
                code="column_names_collide",
                hint="rename one of them, or read a view that does",
            )
        names[target] = column.name
        how, quoted = map_type(column.type), identifier(column.name)
        columns.append(
            ColumnPlan(
                column.name,
                target,
                column.declared,
                how.type,
                how.expression.replace("{}", quoted),
                how.guard and how.guard.replace("{}", quoted),
            )
        )
    return TablePlan(table.relation, tuple(columns), loss_policy or LossPolicy(), where)


def read_range(
    dsn: Dsn,
    snapshot_id: str,
    plan: TablePlan,
    within: Range,
    *,
    timeouts: Timeouts | None = None,
    batch_bytes: int = 8 << 20,
    max_rows: int = 100_000,
) -> Iterator[pa.RecordBatch]:
    """The rows of the range in that snapshot, in `plan.schema`; a batch has about `batch_bytes`.

    Memory is that of a batch or two, however large the range. Raises `SnapshotLost` (transient) if the exporting
    connection is gone, `InvalidInput` if a value does not fit, `PostgresFailed` (transient) if the server went away.
    """
    timeouts = timeouts or Timeouts()
    with connect(dsn, timeouts) as connection, cursor_of(connection, batch_bytes) as cursor:
        _enter(cursor, dsn, snapshot_id)
        try:
            configure_session(cursor, timeouts)
            cursor.execute(plan.statement(within))
            stream = iter(cursor.fetch_record_batch())
        except DRIVER_ERRORS as error:
            raise translated(error, dsn, f"reading {within}") from None
        while (batch := _next(stream, dsn, within)) is not None:
            ready = _in_schema(batch, plan)
            for start in range(0, ready.num_rows, max_rows):
                yield ready.slice(start, max_rows)


@dataclass(frozen=True)
class RangeRead:
    """A range that a task is to read, and how."""

    dsn: Dsn
    snapshot_id: str
    plan: TablePlan
    within: Range
    timeouts: Timeouts
    batch_bytes: int
    max_rows: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        return read_range(
            self.dsn,
            self.snapshot_id,
            self.plan,
            self.within,
            timeouts=self.timeouts,
            batch_bytes=self.batch_bytes,
            max_rows=self.max_rows,
        )


def _enter(cursor: Cursor, dsn: Dsn, snapshot_id: str) -> None:
    try:
        begin(cursor, snapshot_id=snapshot_id)
    except DriverError as error:
        if error.sqlstate in _INVALID_SNAPSHOT or "snapshot" in str(error):
            raise lost(dsn, str(error)) from None
        raise translated(error, dsn, "entering the snapshot") from None


def _next(stream: Iterator[pa.RecordBatch], dsn: Dsn, within: Range) -> pa.RecordBatch | None:
    try:
        return next(stream, None)
    except DRIVER_ERRORS as error:
        raise translated(error, dsn, f"reading {within}") from None


def _in_schema(batch: pa.RecordBatch, plan: TablePlan) -> pa.RecordBatch:
    if not plan.columns:
        return batch
    arrays = batch.columns[: len(plan.columns)]
    guards = iter(batch.columns[len(plan.columns) :])
    return pa.RecordBatch.from_arrays(
        [
            _in_type(array, column, next(guards) if column.guard else None, plan)
            for array, column in zip(arrays, plan.columns, strict=True)
        ],
        schema=plan.schema,
    )


def _in_type(array: pa.Array, column: ColumnPlan, guard: pa.Array | None, plan: TablePlan) -> pa.Array:
    try:
        changed = 0 if guard is None else pc.sum(guard).as_py() or 0
        if changed and plan.loss_policy.nested_arrays == "error":
            raise ValueUnfit("an array of several dimensions", changed, "nested_arrays")
        ready = converted(array, column.type, plan.loss_policy)
    except ValueUnfit as unfit:
        raise InvalidInput(
            f"the column {column.source!r} ({column.declared}) of {plan.relation} holds {unfit.what} in {unfit.count} "
            f"of the {len(array)} rows just read, which {column.type} cannot hold",
            code="postgres_value_unfit",
            hint=f'set {unfit.setting} = "null" for the source to read them as null, or correct the rows',
            details={"column": column.source, "rows": unfit.count, "setting": unfit.setting},
        ) from None
    if guard is None or not changed:
        return ready
    return pc.if_else(guard.fill_null(False), pa.scalar(None, ready.type), ready)
