"""Catalog queries of a Postgres (12 and later). Places in braces are filled with quoted literals or oids."""

from __future__ import annotations

RELATIONS = """
SELECT c.relname::text AS name, c.relkind::text AS kind, c.relispartition AS is_partition,
       has_schema_privilege(n.oid, 'USAGE') AND
       (has_table_privilege(c.oid, 'SELECT')) AS readable
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
"""

TABLES = """
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

COLUMNS = """
SELECT a.attrelid::int8 AS relation, a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS declared, a.atttypid::int8 AS type,
       a.atttypmod AS modifier, a.attndims::int4 AS dimensions, a.attnotnull AS not_null,
       a.attgenerated <> '' AS generated
FROM pg_catalog.pg_attribute a
WHERE a.attrelid IN ({oids}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

TYPES = """
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

# The file of a relation, read by a function, is today's; that of the row is the snapshot's.
PARTS = """
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
