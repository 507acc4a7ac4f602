"""Source tables: the requested tables of a schema, and their columns with exact types.

- Patterns and `*` choose ordinary and partitioned tables, unlogged ones too. Partitions are not chosen by a pattern:
  their rows are those of the table they belong to, which is read partition by partition.
- Views, materialized views, foreign tables and single partitions are read where they are named. The rows of a foreign
  table are those of another server at that moment: no snapshot of ours reaches there.
- A table that others inherit from gives its own rows only, as pg_dump does; its children are tables of their own.
- Temporary tables belong to the session that made them and are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from adbc_driver_manager.dbapi import Cursor

from frazil.errors import Denied, FrazilError, Misconfigured, NotFound
from frazil.pipeline.sources.postgres.catalog_queries import COLUMNS, PARTS, RELATIONS, TABLES, TYPES
from frazil.pipeline.sources.postgres.connection import (
    DRIVER_ERRORS,
    PostgresFailed,
    Timeouts,
    begin,
    configure_session,
    connect,
    cursor_of,
    identifier,
    literal,
    rows,
    translated,
)
from frazil.pipeline.sources.postgres.dsn import Dsn
from frazil.pipeline.sources.postgres.type_mapping import PgType

OLDEST = 120_000
_WITH_RANGES = 140_000
KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}


@dataclass(frozen=True)
class SourceRelation:
    """Something with rows, by its name."""

    schema: str
    name: str
    kind: str
    """`pg_class.relkind`, one of `KINDS`."""

    @property
    def sql(self) -> str:
        return identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class SkippedTable:
    """A requested table that will not be read, with the reason; the others go on."""

    name: str
    error: FrazilError


@dataclass(frozen=True)
class SelectedTables:
    relations: tuple[SourceRelation, ...]
    refused: tuple[SkippedTable, ...] = ()


@dataclass(frozen=True)
class SourceColumn:
    name: str
    declared: str
    """The type as Postgres prints it."""
    type: PgType
    not_null: bool
    generated: bool


@dataclass(frozen=True)
class TablePartition:
    """What is scanned: the table itself, or one of its partitions."""

    relation: SourceRelation
    blocks: int | None
    """Pages of its heap; None where rows have no place that a range could name."""
    bytes: int


@dataclass(frozen=True)
class SourceTable:
    relation: SourceRelation
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    parts: tuple[TablePartition, ...]
    rows_estimate: int | None
    """As of the last ANALYZE."""

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


def select(
    dsn: Dsn, schema: str, tables: Sequence[str], exclude: Sequence[str] = (), *, timeouts: Timeouts | None = None
) -> SelectedTables:
    """The relations of the schema that the names and patterns mean, by name."""
    timeouts = timeouts or Timeouts()
    with connect(dsn, timeouts) as connection:
        try:
            with cursor_of(connection) as cursor:
                begin(cursor)
                configure_session(cursor, timeouts)
                refuse_old(_version(cursor))
                found = rows(cursor, RELATIONS.format(schema=literal(schema)))
        except DRIVER_ERRORS as error:
            raise translated(error, dsn, "looking for tables") from None
    return select_tables(schema, found, tables, exclude)


def select_tables(
    schema: str, found: Iterable[Mapping[str, Any]], tables: Sequence[str], exclude: Sequence[str]
) -> SelectedTables:
    """Which of the relations found are meant. A name that is there exactly is a name, whatever is in it."""
    by_name = {row["name"]: row for row in found}
    chosen: set[str] = set()
    refused: list[SkippedTable] = []
    for wanted in tables:
        if wanted in by_name:
            chosen.add(wanted)
            continue
        matches = {
            name
            for name, row in by_name.items()
            if row["kind"] in ("r", "p") and not row["is_partition"] and fnmatchcase(name, wanted)
        }
        if not matches:
            refused.append(SkippedTable(wanted, _missing(schema, wanted)))
        chosen |= matches
    included = sorted(name for name in chosen if not any(name == out or fnmatchcase(name, out) for out in exclude))
    for name in included:
        if not by_name[name]["readable"]:
            refused.append(SkippedTable(name, _unreadable(schema, name)))
    return SelectedTables(
        tuple(SourceRelation(schema, name, by_name[name]["kind"]) for name in included if by_name[name]["readable"]),
        tuple(refused),
    )


def describe(
    cursor: Cursor, relations: Sequence[SourceRelation]
) -> tuple[tuple[SourceTable, ...], tuple[SkippedTable, ...]]:
    """The tables as they are in the transaction of the cursor, which holds locks on them."""
    if not relations:
        return (), ()
    version = _version(cursor)
    wanted = ", ".join(f"({literal(one.schema)}, {literal(one.name)})" for one in relations)
    tables = {row["oid"]: row for row in rows(cursor, TABLES.format(wanted=wanted))}
    oids = ", ".join(str(oid) for oid in tables) or "0"
    columns = rows(cursor, COLUMNS.format(oids=oids))
    types = {row["oid"]: row for row in rows(cursor, TYPES.format(oids=oids))}
    parts = rows(cursor, PARTS.format(oids=oids))
    by_relation = {(row["schema"], row["name"]): oid for oid, row in tables.items()}
    described: list[SourceTable] = []
    refused: list[SkippedTable] = []
    for relation in relations:
        oid = by_relation.get((relation.schema, relation.name))
        if oid is None:
            refused.append(SkippedTable(relation.name, _missing(relation.schema, relation.name)))
            continue
        own_parts = [row for row in parts if row["root"] == oid]
        if any(row["rewritten"] for row in own_parts):
            refused.append(SkippedTable(relation.name, _rewritten(relation)))
            continue
        described.append(
            SourceTable(
                relation,
                tuple(_column(row, types) for row in columns if row["relation"] == oid),
                tuple(tables[oid]["primary_key"] or ()),
                _parts(relation, own_parts, version),
                None if tables[oid]["estimate"] < 0 else int(tables[oid]["estimate"]),
            )
        )
    return tuple(described), tuple(refused)


def refuse_old(version: int) -> None:
    """The catalog queries need Postgres 12: partition trees and generated columns."""
    if version < OLDEST:
        raise Misconfigured(
            f"the server is Postgres {version // 10_000}, and frazil reads from {OLDEST // 10_000} on",
            code="postgres_too_old",
            hint="read from a newer server, for example a replica that was upgraded",
        )


def _version(cursor: Cursor) -> int:
    return int(rows(cursor, "SELECT current_setting('server_version_num') AS v")[0]["v"])


def _column(row: Mapping[str, Any], types: Mapping[int, Mapping[str, Any]]) -> SourceColumn:
    resolved = _resolved(row["type"], row["modifier"], row["dimensions"], types)
    return SourceColumn(row["name"], row["declared"], resolved, row["not_null"], row["generated"])


def _resolved(oid: int, modifier: int, dimensions: int, types: Mapping[int, Mapping[str, Any]]) -> PgType:
    row, was_domain = types[oid], False
    while row["kind"] == "d":
        # The dimensions of a domain are its own; a column of it can add none.
        modifier, dimensions, was_domain = row["modifier"], row["dimensions"], True
        row = types[row["base"]]
    element = _resolved(row["element"], modifier, 0, types) if row["is_array"] else None
    sql = identifier(row["schema"], row["name"])
    # A type of the same name in another schema is another type; those of extensions may be anywhere.
    name = row["name"] if row["schema"] == "pg_catalog" or row["of_extension"] else sql
    return PgType(name, sql, row["kind"], modifier, element, dimensions if element else 0, was_domain)


def _parts(relation: SourceRelation, own: Sequence[Mapping[str, Any]], version: int) -> tuple[TablePartition, ...]:
    whole = TablePartition(relation, None, sum(row["bytes"] or 0 for row in own))
    if relation.kind in ("v", "f") or not own:
        return (whole,)
    # Whoever may read a partitioned table need not be allowed to read its partitions by themselves.
    if not all(row["readable"] for row in own):
        return (whole,)
    return tuple(
        TablePartition(
            SourceRelation(row["schema"], row["name"], row["kind"]),
            # Scans of a range of places came with Postgres 14; before, each range would read the whole table.
            row["blocks"] if row["kind"] in ("r", "m") and row["is_heap"] and version >= _WITH_RANGES else None,
            row["bytes"] or 0,
        )
        for row in own
    )


def _missing(schema: str, wanted: str) -> FrazilError:
    return NotFound(
        f"there is no table {wanted!r} in the schema {schema!r}",
        code="postgres_table_missing",
        hint="names are case-sensitive, and patterns leave views and partitions out; look with \\d in psql",
    )


def _unreadable(schema: str, name: str) -> FrazilError:
    return Denied(
        f"the user of the DSN may not read {schema}.{name}",
        code="postgres_denied",
        hint=f"GRANT USAGE ON SCHEMA {identifier(schema)} and GRANT SELECT ON {identifier(schema, name)} to it",
    )


def _rewritten(relation: SourceRelation) -> FrazilError:
    return PostgresFailed(
        f"{relation} was rewritten while the snapshot was taken", code="postgres_table_changed", hint="try again"
    )
