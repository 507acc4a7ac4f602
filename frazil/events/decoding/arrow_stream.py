"""Arrow streams: the envelope's columns (id, op, ts, actor, source, workspace; each optional) and the table's.

The table's columns are next to the envelope's, or inside one struct column `data`, which is needed if the table itself
has a column `id` or `ts`. Values are cast only where nothing is lost.

A patch sets every column of the stream, nulls too, unless the row names what it sets in a list column `fields`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.errors import InvalidInput
from frazil.events.declaration.column_types import NAME, ColumnType
from frazil.events.declaration.table_spec import EXTRA, PATCH, Column, TableSpec
from frazil.events.decoding.arrow_cast import (
    Room,
    as_json,
    cast_exact,
    check_taken,
    new_type,
    plain,
    row_bytes,
    to_python,
    type_depth,
)
from frazil.events.decoding.arrow_size import measure
from frazil.events.decoding.envelope import DELETE, ENVELOPE, MAX_TEXT, PATCH_OP, assemble, not_an_op, ops_of
from frazil.events.decoding.json_text import Wrong, compact
from frazil.events.decoding.json_values import shown_name
from frazil.events.decoding.limits import (
    MAX_DETAILS,
    Limits,
    Problems,
    body_too_large,
    check_event_count,
    empty_batch,
    event_too_large,
    names_hint,
    too_deep,
    too_many_fields,
)
from frazil.events.decoding.memory import arrow_memory, python_memory

_STRING, _LONG, _TIMESTAMP = ColumnType("string"), ColumnType("long"), ColumnType("timestamp")


def decode_arrow(
    body: bytes, spec: TableSpec, *, received_at: datetime, limits: Limits
) -> tuple[pa.RecordBatch, TableSpec]:
    """All rows of the stream as events, or an error that names the columns and rows that cannot be kept."""
    table = _read(body, spec, limits)
    problems = Problems()
    envelope, columns, fields = _split(table, spec, problems, limits)
    problems.raise_if_any(table.num_rows)
    _check_event_sizes([*envelope.values(), *columns.values()], limits)
    count = table.num_rows
    kept = {name: _envelope_column(name, array, spec, problems, limits) for name, array in envelope.items()}
    ops = _Ops(kept.get("op"), fields, columns, spec)
    spec, known = _table_columns(columns, count, spec, ops, problems, limits)
    if ops.has_patches:
        known[PATCH] = ops.patches(known, spec, problems)
    problems.raise_if_any(count)
    return assemble(spec, count, received_at=received_at, envelope=kept, columns=known), spec


def _read(body: bytes, spec: TableSpec, limits: Limits) -> pa.Table:
    try:
        unpacked = measure(body)
        # Every value counts as a byte at least: billions of nulls take none, until something is made of them.
        if (size := max(unpacked.size, unpacked.values)) > limits.max_body_bytes:
            raise body_too_large(size, limits)
        limits.claim(arrow_memory(unpacked, len(spec.columns)))
        with pa.ipc.open_stream(body) as reader:
            _check_schema(reader.schema, limits)
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                check_event_count(rows, limits)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidInput(
            f"the Arrow stream is damaged: {str(error).splitlines()[0][:300] if str(error) else type(error).__name__}",
            code="invalid_arrow",
            hint="write the stream with an Arrow IPC stream writer (not the file format), close it, and send all bytes",
        ) from error
    if not rows:
        raise empty_batch()
    return table


def _check_schema(schema: pa.Schema, limits: Limits) -> None:
    if len(schema) > limits.max_fields + len(ENVELOPE):
        raise too_many_fields(None, len(schema), limits)
    if any(type_depth(field.type) > limits.max_depth for field in schema):
        raise too_deep(None, limits)
    problems = Problems()
    seen: set[str] = set()
    for field in schema:
        if field.name in seen:
            problems.add(0, shown_name(field.name), "the stream has this column twice")
        seen.add(field.name)
        try:
            check_taken(field.type)
        except Wrong as wrong:
            problems.add(0, shown_name(field.name), wrong.reason)
    problems.raise_if_any(1)


def _split(
    table: pa.Table, spec: TableSpec, problems: Problems, limits: Limits
) -> tuple[dict[str, pa.Array], dict[str, pa.Array], pa.Array | None]:
    """The columns of the envelope, those of the table, and `fields`; each in one piece and without dictionaries."""
    given: dict[str, pa.Array] = {}
    room = Room(limits)
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            given[name] = plain(column.combine_chunks(), room)
        except (Wrong, pa.ArrowException) as wrong:
            problems.add(0, shown_name(name), str(wrong))
    fields = None
    if spec.kind != "log" and "fields" not in spec.columns:
        fields = given.pop("fields", None)
        if fields is not None and not (pt.is_list(fields.type) and pt.is_string(fields.type.value_type)):
            problems.add(0, "fields", "expected a list of column names, list<string>")
    data = given.get("data")
    if data is None or not pt.is_struct(data.type):
        columns = {name: array for name, array in given.items() if name not in ENVELOPE or name == "data"}
    else:
        del given["data"]
        for name in given:
            if name not in ENVELOPE:
                problems.add(0, shown_name(name), f"unknown field next to `data`, {names_hint(name, ENVELOPE)}")
        for index in _some(data.is_null()):
            problems.add(index, "data", "`data` is null; it must contain the columns of the event")
        names = [data.type.field(at).name for at in range(data.type.num_fields)]
        if len(set(names)) != len(names):
            problems.add(0, "data", "the struct has a field twice")
        columns = dict(zip(names, data.flatten(), strict=True))
    if len(columns) > limits.max_fields:
        raise too_many_fields(None, len(columns), limits)
    return {name: array for name, array in given.items() if name in ENVELOPE and name != "data"}, columns, fields


def _check_event_sizes(arrays: list[pa.Array], limits: Limits) -> None:
    if not arrays or sum(array.nbytes for array in arrays) <= limits.max_event_bytes:
        return
    sizes = sum((row_bytes(array) for array in arrays), np.zeros(len(arrays[0]), np.int64))
    largest = int(sizes.argmax())
    if sizes[largest] > limits.max_event_bytes:
        raise event_too_large(largest, int(sizes[largest]), limits)


def _envelope_column(name: str, array: pa.Array, spec: TableSpec, problems: Problems, limits: Limits) -> pa.Array:
    array = _cast_or_report(name, array, _TIMESTAMP if name == "ts" else _STRING, problems, limits)
    if array is None or name == "ts":
        return array
    if name == "op":
        for index in _some(pc.invert(pc.is_in(array, pa.array([*ops_of(spec), None], pa.string())))):
            problems.add(index, name, not_an_op(spec))
        return array
    lengths = pc.utf8_length(array)
    for index in _some(pc.greater(lengths, MAX_TEXT)):
        problems.add(index, name, f"the text has more than {MAX_TEXT} characters")
    if name == "id":
        for index in _some(pc.equal(lengths, 0)):
            problems.add(index, name, "the id is empty; use null to get a generated id")
    return array


def _some(mask: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return found


class _Ops:
    """What the rows of the stream do, and so which columns each of them needs and sets."""

    def __init__(
        self, ops: pa.Array | None, fields: pa.Array | None, columns: dict[str, pa.Array], spec: TableSpec
    ) -> None:
        self._ops = ops
        self._fields = fields
        self._columns = columns
        self._key = spec.key if spec.kind != "log" else ()
        is_patch = None if ops is None else pc.fill_null(pc.equal(ops, PATCH_OP), False)
        self._patching: list[int] = [] if is_patch is None else _some(is_patch)

    @property
    def has_patches(self) -> bool:
        return bool(self._patching)

    def needing(self, name: str, count: int) -> pa.Array:
        """The rows that must have a value in a required column."""
        if self._ops is None or name in self._key:
            return pa.repeat(pa.scalar(True), count)
        spared = np.asarray(pc.fill_null(pc.equal(self._ops, DELETE), False), dtype=bool).copy()
        for index in self._patching:
            spared[index] = name not in self._named(index)
        return pa.array(~spared)

    def _named(self, index: int) -> list[str]:
        named = None if self._fields is None else self._fields[index].as_py()
        return [*self._columns] if named is None else [str(name) for name in named]

    def patches(self, kept: dict[str, pa.Array], spec: TableSpec, problems: Problems) -> pa.Array:
        """For each patch the columns that it sets, and null for every other row."""
        assert self._ops is not None
        found: list[list[str] | None] = [None] * len(self._ops)
        for index in self._patching:
            named = self._named(index)
            for name in named:
                if name not in self._columns:
                    problems.add(index, "fields", f"names {name[:80]!r}, which is not a column of the stream")
            extra = spec.unknown_fields == "keep" and any(name not in spec.columns for name in named)
            set_here = [name for name in dict.fromkeys(named) if name in kept and name not in self._key]
            found[index] = set_here + ([EXTRA] if extra else [])
        return pa.array(found, pa.list_(pa.field("element", pa.string())))


def _table_columns(
    given: dict[str, pa.Array], count: int, spec: TableSpec, ops: _Ops, problems: Problems, limits: Limits
) -> tuple[TableSpec, dict[str, pa.Array]]:
    added: dict[str, Column] = {}
    columns: dict[str, pa.Array] = {}
    extra: dict[str, pa.Array] = {}
    for name, array in given.items():
        declared = spec.columns.get(name)
        wanted = declared.type if declared else new_type(array.type)
        if declared is None:
            if spec.unknown_fields == "keep":
                extra[name] = array
                continue
            if array.null_count == count and spec.unknown_fields == "evolve":
                continue
            if not _may_be_added(name, spec, problems):
                continue
            added[name] = Column(wanted)
        elif wanted.kind == "int" and spec.unknown_fields == "evolve" and _needs_long(array):
            wanted = _LONG
            added[name] = replace(declared, type=_LONG)
        cast = _cast_or_report(name, array, wanted, problems, limits)
        if cast is not None:
            columns[name] = cast
    for name, column in spec.columns.items():
        if column.required:
            array = given.get(name)
            missing = pa.repeat(pa.scalar(True), count) if array is None else array.is_null()
            for index in _some(pc.and_(missing, ops.needing(name, count)))[:MAX_DETAILS]:
                problems.add(index, name, "required, but missing or null")
    if extra:
        columns[EXTRA] = _extra(extra, count, problems, limits)
    return (spec.with_columns(added) if added and not problems.details else spec), columns


def _may_be_added(name: str, spec: TableSpec, problems: Problems) -> bool:
    if spec.unknown_fields == "reject":
        known = [*spec.columns, *ENVELOPE[:-1]]
        problems.add(0, shown_name(name), f"unknown column, {names_hint(name, known)}")
        return False
    if not NAME.match(name):
        problems.add(
            0, shown_name(name), "not a column name: use a-z, 0-9 and _, beginning with a letter, at most 63 characters"
        )
        return False
    return True


def _needs_long(array: pa.Array) -> bool:
    if not pt.is_integer(array.type):
        return False
    try:
        pc.cast(array, pa.int32())
    except pa.ArrowInvalid:
        return True
    return False


def _cast_or_report(
    name: str, array: pa.Array, wanted: ColumnType, problems: Problems, limits: Limits
) -> pa.Array | None:
    try:
        return cast_exact(array, wanted, limits)
    except (Wrong, pa.ArrowException, ValueError):
        # Which rows it was that did not fit is found one by one: only a bad batch pays for it.
        before = len(problems.details)
        for index in range(len(array)):
            try:
                cast_exact(array.slice(index, 1), wanted, limits)
            except (Wrong, pa.ArrowException, ValueError) as error:
                problems.add(index, shown_name(name) + getattr(error, "path", ""), str(error))
                if len(problems.details) >= MAX_DETAILS:
                    break
        if len(problems.details) == before:
            problems.add(0, shown_name(name), "the values cannot be converted to the type of the column")
        return None


def _extra(unknown: dict[str, pa.Array], count: int, problems: Problems, limits: Limits) -> pa.Array:
    kept: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, array in unknown.items():
        limits.claim(python_memory(array))
        try:
            for index, value in enumerate(to_python(array)):
                if value is not None:
                    kept[index][name] = as_json(value)
        except Wrong as wrong:
            problems.add(0, shown_name(name), wrong.reason)
    texts = [compact(fields) if fields else None for fields in kept]
    return pa.array(texts, pa.string())
