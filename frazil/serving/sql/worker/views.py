"""Views of relations: the SQL through which a statement sees a table.

A view is bound when it is made and once more when it is read, and binding `iceberg_scan` reads the table's metadata
(6 ms on 9 files). So the view calls a table macro: while the view is made the macro is an empty stand-in with the same
columns, afterwards it is replaced by the scan, which is thus bound once. Making macro and view takes 0.9 ms.
"""

# ruff: noqa: S608 (what is put into the text is quote_name here, or was judged before)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from glob import glob
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from frazil.errors import InvalidInput
from frazil.events.declaration import quote_name
from frazil.serving.sql.query import Relation
from frazil.serving.sql.worker.entity_overlay import COUNTED, EntityOverlay, decode_overlay, entity_rows_sql

SaltOf = Callable[[str], str]
"""The salt of a domain of hashes."""

# No predicate passes a LIMIT on its way down, since it would change what the limit counts. So nothing that a caller
# writes is evaluated on rows that the filter hides, and a failing cast tells nothing about them. The engine streams it.
_BARRIER = "LIMIT 9223372036854775807"
_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
}


@dataclass(frozen=True)
class RelationNames:
    """Names inside the engine that no statement can guess."""

    schema: str
    parameter: str

    def source(self, index: int) -> str:
        return f"{self.schema}.r{index}"

    def tail(self, index: int) -> str:
        return f"{self.schema}.t{index}"


@dataclass(frozen=True)
class RelationView:
    """A relation as the worker receives it: plain values only."""

    schema: str
    name: str
    columns: Sequence[tuple[str, str]]
    metadata: str | None
    snapshot_id: int | None
    where: str | None
    masks: Mapping[str, str]
    salts: Mapping[str, str]
    lines: str | None
    tail: str | None
    start: int
    end: int
    folding: EntityOverlay | None = None

    @property
    def restricted(self) -> bool:
        return self.where is not None or bool(self.masks)


def encode_relation(relation: Relation, salt_of: SaltOf) -> dict[str, Any]:
    """A relation in the form that crosses the wire; its tail goes beside it."""
    tail = relation.tail
    return {
        "schema": relation.schema,
        "name": relation.name,
        "columns": _typed(relation.columns),
        "metadata": relation.metadata,
        "snapshot_id": relation.snapshot_id,
        "where": relation.where,
        "masks": dict(relation.masks),
        "salts": {column: salt_of(domain) for column, domain in relation.hash_domains.items()},
        "lines": relation.lines,
        "tail": tail.key if tail else None,
        "start": tail.start if tail else 0,
        "end": tail.end if tail else 0,
        "folding": relation.folding.as_json() if relation.folding else None,
    }


@lru_cache(maxsize=1024)
def _typed(columns: pa.Schema) -> list[tuple[str, str]]:
    return [(column.name, sql_type(column.type)) for column in columns]


def sql_type(kind: pa.DataType) -> str:
    """The engine's name of an Arrow type that a table can have."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kinds.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kinds.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return sql_type(kind.value_type) + "[]"
    if kinds.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if kinds.is_struct(kind):
        return "STRUCT(" + ", ".join(f"{quote_name(part.name)} {sql_type(part.type)}" for part in kind) + ")"
    raise InvalidInput(f"a column of type {kind} cannot be queried")


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def nothing(columns: Sequence[tuple[str, str]]) -> str:
    """No row, with these columns."""
    return "SELECT " + ", ".join(f"NULL::{kind} AS {quote_name(name)}" for name, kind in columns) + " WHERE false"


def view(relation: RelationView, index: int, names: RelationNames, tail_table: str | None, *, ends: bool = True) -> str:
    """The statements that make a relation's view, to be run inside a transaction.

    `ends`: whether the tail must be cut at its end, or has no rows beyond it.
    """
    source, parameter = names.source(index), names.parameter
    visible = [(name, visible_type(kind, relation.masks.get(name))) for name, kind in relation.columns]
    namespace = "" if relation.schema == "main" else f"CREATE SCHEMA IF NOT EXISTS {quote_name(relation.schema)};"
    return (
        f"{namespace}"
        # With a parameter that it uses: a macro without one is bound when it is made.
        f"CREATE MACRO {source}({parameter}) AS TABLE {nothing(visible)} AND {parameter} IS NULL;"
        f"CREATE VIEW {quote_name(relation.schema)}.{quote_name(relation.name)} AS "
        f"SELECT * FROM {source}({text(relation.metadata or '')});"
        f"CREATE OR REPLACE MACRO {source}({parameter}) AS TABLE {_rows(relation, parameter, tail_table, ends)};"
    )


def take_down(relations: Sequence[RelationView], names: RelationNames) -> str:
    """The statements that undo `view` for all of these."""
    schemas = {relation.schema for relation in relations} - {"main"}
    return "".join(
        [
            *(
                f"DROP VIEW {quote_name(relation.schema)}.{quote_name(relation.name)};"
                f"DROP MACRO TABLE {names.source(index)};"
                for index, relation in enumerate(relations)
            ),
            *(f"DROP SCHEMA {quote_name(schema)};" for schema in sorted(schemas)),
        ]
    )


def _rows(relation: RelationView, parameter: str, tail_table: str | None, ends: bool) -> str:
    if relation.folding is not None:
        return _restricted(_state(relation, relation.folding, parameter, tail_table, ends), relation)
    columns = ", ".join(quote_name(name) for name, _ in relation.columns)
    parts = []
    if relation.lines is not None:
        parts.append(_lines(relation))
    elif relation.metadata is not None:
        parts.append(f"SELECT {COUNTED}, {columns} FROM {_scan(parameter, relation.snapshot_id)}")
    if tail_table is not None:
        parts.append(f"SELECT {COUNTED}, {columns} FROM {_of_tail(relation, tail_table, ends)}")
    # A tail has the types of today; a snapshot of the past may have narrower ones.
    typed = ", ".join(f"CAST({quote_name(name)} AS {kind}) AS {quote_name(name)}" for name, kind in relation.columns)
    parts = parts or [nothing(relation.columns)]
    rows = f"SELECT {columns if tail_table is not None else typed} FROM ({' UNION ALL '.join(parts)})"
    return _restricted(rows, relation)


def _scan(metadata: str, snapshot_id: int | None) -> str:
    at = "" if snapshot_id is None else f", snapshot_from_id => {snapshot_id}::UBIGINT"
    return f"iceberg_scan({metadata}{at})"


def _of_tail(relation: RelationView, tail_table: str, ends: bool) -> str:
    within = f"_seq >= {relation.start}" + (f" AND _seq < {relation.end}" if ends else "")
    return f"{tail_table} WHERE {within}"


def _state(relation: RelationView, folding: EntityOverlay, parameter: str, tail_table: str | None, ends: bool) -> str:
    history = None
    if folding.history is not None:
        scan = _scan(text(folding.history), folding.history_snapshot_id)
        history = f"{scan} WHERE _seq >= {folding.start}"
    return entity_rows_sql(
        folding,
        relation.columns,
        base=None if relation.metadata is None else _scan(parameter, relation.snapshot_id),
        tail=None if tail_table is None else _of_tail(relation, tail_table, ends),
        scan_history=history,
    )


def _restricted(rows: str, relation: RelationView) -> str:
    return restricted(rows, relation.columns, relation.where, relation.masks, relation.salts)


def restricted(
    rows: str,
    columns: Sequence[tuple[str, str]],
    where: str | None,
    masks: Mapping[str, str],
    salts: Mapping[str, str],
    *,
    also: Sequence[str] = (),
) -> str:
    """The rows and columns that the caller may see of these; `also` are columns that pass as they are."""
    if where is not None:
        # On lines of its own, so that a comment at its end stays inside.
        rows = f"SELECT * FROM ({rows}) WHERE (\n{where}\n) {_BARRIER}"
    if masks:
        masked = ", ".join([*(_masked(name, kind, masks.get(name), salts.get(name)) for name, kind in columns), *also])
        rows = f"SELECT {masked} FROM ({rows})"
    return rows


def _lines(relation: RelationView) -> str:
    """The lines of files that are being appended to: a last line without an end is left out."""
    files = sorted(glob(relation.lines or ""))
    if not files:
        return nothing(relation.columns)
    columns = "{" + ", ".join(f"{text(name)}: {text(kind)}" for name, kind in relation.columns) + "}"
    listed = "[" + ", ".join(map(text, files)) + "]"
    return f"SELECT * FROM read_json({listed}, columns = {columns}, format = 'newline_delimited', ignore_errors = true)"


def visible_type(kind: str, mask: str | None) -> str:
    return "VARCHAR" if mask == "hash" else kind


def _masked(name: str, kind: str, mask: str | None, salt: str | None) -> str:
    column = quote_name(name)
    if mask is None:
        return column
    if mask == "hash":
        assert salt is not None, "a hash has a domain, and so a salt"
        return f"sha256({text(salt)} || CAST({column} AS VARCHAR)) AS {column}"
    if mask == "redact" and kind == "VARCHAR":
        return f"CASE WHEN {column} IS NULL THEN NULL ELSE '***' END AS {column}"
    return f"NULL::{kind} AS {column}"


def decode_relation(values: dict[str, Any]) -> RelationView:
    columns = [(str(name), str(kind)) for name, kind in values["columns"]]
    return RelationView(**{**values, "columns": columns, "folding": decode_overlay(values.get("folding"))})
