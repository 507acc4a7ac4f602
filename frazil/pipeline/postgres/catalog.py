"""What there is to read: the tables of a schema that were asked for, and their columns with exact types.

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

from frazil.errors import Denied, FrazilError, NotFound
from frazil.pipeline.postgres.dsn import Dsn
from frazil.pipeline.postgres.link import (
    DRIVER_ERRORS,
    Patience,
    PostgresFailed,
    begin,
    cursor_of,
    identifier,
    linked,
    literal,
    rows,
    settle,
    translated,
)
from frazil.pipeline.postgres.types import PgType

KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}


@dataclass(frozen=True)
class Relation:
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
class Refused:
    """A table that was asked for and will not be read, with the reason; the others go on."""

    name: str
    error: FrazilError


@dataclass(frozen=True)
class Selection:
    relations: tuple[Relation, ...]
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class Column:
    name: str
    declared: str
    """The type as Postgres prints it."""
    type: PgType
    not_null: bool
    generated: bool


@dataclass(frozen=True)
class Part:
    """What is scanned: the table itself, or one of its partitions."""

    relation: Relation
    blocks: int | None
    """Pages of its heap; None where rows have no place that a range could name."""
    bytes: int


@dataclass(frozen=True)
class SourceTable:
    relation: Relation
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    parts: tuple[Part, ...]
    rows_estimate: int | None
    """As of the last ANALYZE."""

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


def select(
    dsn: Dsn, schema: str, tables: Sequence[str], exclude: Sequence[str] = (), *, patience: Patience | None = None
) -> Selection:
    """The relations of the schema that the names and patterns mean, by name."""
    patience = patience or Patience()
    with linked(dsn, patience) as connection:
        try:
            with cursor_of(connection) as cursor:
                begin(cursor)
                settle(cursor, patience)
                found = rows(cursor, _RELATIONS.format(schema=literal(schema)))
        except DRIVER_ERRORS as error:
            raise translated(error, dsn, "looking for tables") from None
    return choose(schema, found, tables, exclude)


def choose(schema: str, found: Iterable[Mapping[str, Any]], tables: Sequence[str], exclude: Sequence[str]) -> Selection:
    """Which of the relations found are meant. A name that is there exactly is a name, whatever is in it."""
    by_name = {row["name"]: row for row in found}
    chosen: set[str] = set()
    refused: list[Refused] = []
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
            refused.append(Refused(wanted, _missing(schema, wanted)))
        chosen |= matches
    kept = sorted(name for name in chosen if not any(name == out or fnmatchcase(name, out) for out in exclude))
    for name in kept:
        if not by_name[name]["readable"]:
            refused.append(Refused(name, _unreadable(schema, name)))
    return Selection(
        tuple(Relation(schema, name, by_name[name]["kind"]) for name in kept if by_name[name]["readable"]),
        tuple(refused),
    )


def describe(cursor: Cursor, relations: Sequence[Relation]) -> tuple[tuple[SourceTable, ...], tuple[Refused, ...]]:
    """The tables as they are in the transaction of the cursor, which holds locks on them."""
    if not relations:
        return (), ()
    version = int(rows(cursor, "SELECT current_setting('server_version_num') AS v")[0]["v"])
    wanted = ", ".join(f"({literal(one.schema)}, {literal(one.name)})" for one in relations)
    tables = {row["oid"]: row for row in rows(cursor, _TABLES.format(wanted=wanted))}
    oids = ", ".join(str(oid) for oid in tables) or "0"
    columns = rows(cursor, _COLUMNS.format(oids=oids))
    types = {row["oid"]: row for row in rows(cursor, _TYPES.format(oids=oids))}
    parts = rows(cursor, _PARTS.format(oids=oids))
    by_relation = {(row["schema"], row["name"]): oid for oid, row in tables.items()}
    described: list[SourceTable] = []
    refused: list[Refused] = []
    for relation in relations:
        oid = by_relation.get((relation.schema, relation.name))
        if oid is None:
            refused.append(Refused(relation.name, _missing(relation.schema, relation.name)))
            continue
        own_parts = [row for row in parts if row["root"] == oid]
        if any(row["rewritten"] for row in own_parts):
            refused.append(Refused(relation.name, _rewritten(relation)))
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


def _column(row: Mapping[str, Any], types: Mapping[int, Mapping[str, Any]]) -> Column:
    resolved = _resolved(row["type"], row["modifier"], row["dimensions"], types)
    return Column(row["name"], row["declared"], resolved, row["not_null"], row["generated"])


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


def _parts(relation: Relation, own: Sequence[Mapping[str, Any]], version: int) -> tuple[Part, ...]:
    whole = Part(relation, None, sum(row["bytes"] or 0 for row in own))
    if relation.kind in ("v", "f") or not own:
        return (whole,)
    # Whoever may read a partitioned table need not be allowed to read its partitions by themselves.
    if not all(row["readable"] for row in own):
        return (whole,)
    return tuple(
        Part(
            Relation(row["schema"], row["name"], row["kind"]),
            # Scans of a range of places came with Postgres 14; before, each range would read the whole table.
            row["blocks"] if row["kind"] in ("r", "m") and row["is_heap"] and version >= 140_000 else None,
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


def _rewritten(relation: Relation) -> FrazilError:
    return PostgresFailed(
        f"{relation} was rewritten while the snapshot was taken", code="postgres_table_changed", hint="try again"
    )


_RELATIONS = """
SELECT c.relname::text AS name, c.relkind::text AS kind, c.relispartition AS is_partition,
       has_schema_privilege(n.oid, 'USAGE') AND
       (has_table_privilege(c.oid, 'SELECT')) AS readable
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
"""

_TABLES = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name,
       CASE WHEN c.relkind = 'p' THEN
         (SELECT CASE WHEN min(l.reltuples) < 0 THEN -1 ELSE sum(l.reltuples) END
          FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class l ON l.oid = t.relid WHERE t.isleaf)
       ELSE c.reltuples END::float8 AS estimate,
       (SELECT array_agg(a.attname::text ORDER BY k.at)
        FROM pg_catalog.pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, at), pg_catalog.pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.attnum
          AND k.at <= i.indnkeyatts) AS primary_key
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({wanted})
"""

_COLUMNS = """
SELECT a.attrelid::int8 AS relation, a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS declared, a.atttypid::int8 AS type,
       a.atttypmod AS modifier, a.attndims::int4 AS dimensions, a.attnotnull AS not_null,
       a.attgenerated <> '' AS generated
FROM pg_catalog.pg_attribute a
WHERE a.attrelid IN ({oids}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

_TYPES = """
WITH RECURSIVE used(oid) AS (
  SELECT DISTINCT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid IN ({oids}) AND NOT a.attisdropped
  UNION
  SELECT x.oid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid
  CROSS JOIN LATERAL (VALUES (t.typbasetype), (t.typelem)) x(oid) WHERE x.oid <> 0
)
SELECT t.oid::int8 AS oid, t.typname::text AS name, n.nspname::text AS schema, t.typtype::text AS kind,
       t.typbasetype::int8 AS base, t.typelem::int8 AS element, t.typtypmod AS modifier, t.typndims AS dimensions,
       t.typcategory = 'A' AND t.typlen = -1 AND t.typelem <> 0 AND t.typname NOT IN ('int2vector', 'oidvector')
         AS is_array,
       EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
               AND d.objid = t.oid AND d.deptype = 'e') AS of_extension
FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""

# The file of a relation, asked for by function, is today's; that of the row is the snapshot's.
_PARTS = """
WITH part(root, oid) AS (
  SELECT c.oid, coalesce(t.relid::oid, c.oid)
  FROM pg_catalog.pg_class c LEFT JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) t ON c.relkind = 'p'
  WHERE c.oid IN ({oids}) AND (c.relkind <> 'p' OR t.isleaf)
)
SELECT p.root::int8 AS root, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AS readable,
       coalesce(m.amname = 'heap', false) AS is_heap,
       c.relkind IN ('r', 'm') AND c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid) AS rewritten,
       (pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::int8) AS blocks,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_catalog.pg_table_size(c.oid) END AS bytes
FROM part p JOIN pg_catalog.pg_class c ON c.oid = p.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
ORDER BY p.root, n.nspname, c.relname
"""
