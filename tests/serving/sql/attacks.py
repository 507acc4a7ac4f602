"""Statements that must not get anywhere, for every layer to try: the judge alone, a worker, the whole service.

`expect` are the codes of which one must come back. For those in `JUDGED` the statement wall itself answers. The others
pass it: `table_not_found` is the gateway's answer to a name that is no table of the caller's, `bad_sql` the binder's to
a name that does not exist, and a bomb ends in its code or, where `truncated` or `answered` are among them, in an answer
that is cut or whole.
`nothing` says how to see that nothing happened:

    file:<path>      no such file exists afterwards (paths are in /tmp/frazil-attack)
    catalog          no table, view, schema, type, macro or secret is there that was not there before
    setting          no setting of the engine has another value
    secret           the answer contains no line of a file, no variable, no path, no setting and no name of the engine's
    next             the next statement of another caller is answered, by the same worker or by a new one
"""

from __future__ import annotations

from dataclasses import dataclass

PLACE = "/tmp/frazil-attack"
JUDGED = frozenset(["bad_sql", "sql_refused", "function_not_allowed"])
REFUSED = frozenset(["sql_refused"])
FUNCTION = frozenset(["function_not_allowed"])
BAD = frozenset(["bad_sql"])
NO_TABLE = frozenset(["table_not_found"])
# No limit is certain to be the first: any of these is an end.
BOMB = frozenset(["out_of_memory", "query_timeout"])


@dataclass(frozen=True)
class Attack:
    family: str
    sql: str
    expect: frozenset[str]
    nothing: str = "secret"
    note: str = ""

    @property
    def judged(self) -> bool:
        """Whether the statement wall answers, without a look at any table."""
        return self.expect <= JUDGED and not self.note.startswith("binder")


def _all(family: str, expect: frozenset[str], nothing: str, *statements: str, note: str = "") -> list[Attack]:
    return [Attack(family, sql, expect, nothing, note) for sql in statements]


FILES = _all(
    "file functions",
    FUNCTION,
    "secret",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd', sep = ':')",
    "SELECT content FROM read_text('/proc/self/environ')",
    "SELECT content FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_ndjson_objects('/etc/passwd')",
    "SELECT * FROM read_parquet('**/*.parquet')",
    "SELECT * FROM parquet_scan('warehouse/*.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM parquet_kv_metadata('x.parquet')",
    "SELECT * FROM iceberg_scan('warehouse/secret/metadata/v1.metadata.json')",
    "SELECT * FROM iceberg_metadata('warehouse/secret')",
    "SELECT * FROM iceberg_snapshots('warehouse/secret')",
    "SELECT * FROM read_avro('x.avro')",
    "SELECT * FROM read_duckdb('x.db')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM seq_scan('x')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(0)",
    "SELECT * FROM python_map_function(0, 0)",
    "SELECT * FROM range(3), LATERAL (SELECT * FROM read_text('/etc/hosts'))",
    "SELECT (SELECT content FROM read_text('/etc/hosts'))",
    "WITH a AS (WITH b AS (SELECT * FROM read_text('/etc/hosts')) FROM b) FROM a",
    "FROM range(1) WHERE EXISTS (FROM read_text('/etc/hosts'))",
    "SELECT 1 ORDER BY (SELECT count(*) FROM glob('*'))",
    "SELECT 1 LIMIT (SELECT count(*) FROM glob('*'))",
    "SELECT sum(1) OVER (ORDER BY (SELECT count(*) FROM glob('*')))",
    "SUMMARIZE FROM read_text('/etc/hosts')",
    "DESCRIBE FROM read_csv('/etc/passwd')",
    "FROM (SELECT 1 AS a) PIVOT (max((SELECT content FROM read_text('/etc/hosts'))) FOR a IN (1))",
)

NETWORK = [
    *_all(
        "network functions",
        FUNCTION,
        "secret",
        "SELECT * FROM read_csv('http://127.0.0.1:7373/v1/status')",
        "SELECT * FROM read_parquet('s3://bucket/*.parquet')",
        "SELECT * FROM read_text('https://169.254.169.254/latest/meta-data/')",
        "SELECT * FROM iceberg_scan('s3://bucket/table')",
        "SELECT * FROM which_secret('s3://bucket/x', 's3')",
        "SELECT http_get('http://127.0.0.1')",
    ),
    Attack("network functions", "SELECT * FROM 'https://example.com/x.parquet'", NO_TABLE),
    Attack("network functions", "SELECT * FROM 's3://bucket/x.parquet'", NO_TABLE),
]

EVALUATED = _all(
    "functions that evaluate text",
    FUNCTION,
    "secret",
    "SELECT * FROM query('SELECT * FROM duckdb_settings()')",
    "SELECT * FROM query_table('duckdb_tables')",
    "SELECT * FROM query_table(['secret', 'notes'])",
    "FROM histogram('secret', 'id')",
    "FROM histogram_values('secret', 'id')",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT json_serialize_plan('SELECT * FROM secret')",
    "SELECT json_deserialize_sql('{}')",
    "SELECT getvariable('x')",
    "SELECT current_setting('s3_secret_access_key')",
    "SELECT nextval('s')",
    "SELECT \"QuErY\"('x')",
    "SELECT system.main.current_setting('threads')",
    "SELECT x.current_setting() FROM (SELECT 'threads' AS x)",
    "SELECT list_transform(['a'], lambda x: current_setting(x))",
    "SELECT [current_setting(x) FOR x IN ['threads']]",
    "SELECT COLUMNS(lambda c: c = current_setting('threads')) FROM (SELECT 1 AS a)",
    "SELECT * REPLACE (current_setting('threads') AS a) FROM (SELECT 1 AS a)",
    "SELECT max(1) FILTER (WHERE current_setting('threads') = '1')",
    "SELECT CASE WHEN true THEN current_setting('threads') END",
    "VALUES (current_setting('threads'))",
)

CHANGES = [
    *_all(
        "data-modifying statements",
        REFUSED,
        "catalog",
        "INSERT INTO notes VALUES (1)",
        "UPDATE notes SET id = 1",
        "DELETE FROM notes",
        "TRUNCATE notes",
        "MERGE INTO notes USING other ON notes.id = other.id WHEN MATCHED THEN DELETE",
        "CREATE TABLE attack AS SELECT 1",
        "CREATE OR REPLACE VIEW notes AS SELECT 1",
        "CREATE TEMP TABLE attack (a INT)",
        "CREATE MACRO lower(x) AS 1",
        "CREATE TYPE attack AS ENUM ('a')",
        "CREATE SECRET attack (TYPE s3)",
        "DROP VIEW notes",
        "ALTER TABLE notes ADD COLUMN x INT",
        "WITH a AS (INSERT INTO notes VALUES (1) RETURNING *) SELECT * FROM a",
        "WITH a AS (DELETE FROM notes RETURNING *) SELECT * FROM a",
        "WITH a AS (SELECT 1) INSERT INTO notes FROM a",
        "WITH a AS (SELECT 1) UPDATE notes SET id = 2",
        "SELECT 1 INTO attack",
        "COMMENT ON TABLE notes IS 'x'",
        "BEGIN TRANSACTION",
        "COMMIT",
        "ROLLBACK",
    ),
    Attack("data-modifying statements", "SELECT * FROM (DELETE FROM notes RETURNING *)", BAD, "catalog"),
]

COMMANDS = [
    *_all(
        "commands of the engine",
        REFUSED,
        "setting",
        "SET memory_limit = '100GB'",
        "SET GLOBAL enable_external_access = true",
        "SET VARIABLE x = 1",
        "RESET lock_configuration",
        "PRAGMA enable_profiling",
        "PRAGMA database_list",
        "PRAGMA version",
        "CALL pragma_version()",
        "CALL enable_logging()",
        "USE system",
        "DETACH memory",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FORCE INSTALL spatial FROM community",
        "UPDATE EXTENSIONS",
        "CHECKPOINT",
        "FORCE CHECKPOINT",
        "VACUUM",
        "ANALYZE",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE SELECT * FROM notes",
        "IMPORT DATABASE '/etc'",
    ),
    *_all(
        "commands that write files",
        REFUSED,
        f"file:{PLACE}/out",
        f"COPY (SELECT 1) TO '{PLACE}/out'",
        f"COPY notes TO '{PLACE}/out' (FORMAT parquet)",
        f"COPY notes FROM '{PLACE}/out'",
        "COPY FROM DATABASE memory TO attack",
        f"EXPORT DATABASE '{PLACE}/out'",
        f"ATTACH '{PLACE}/out'",
        f"ATTACH '{PLACE}/out' AS other (READ_ONLY)",
        f"PRAGMA profiling_output = '{PLACE}/out'",
    ),
]

SEVERAL = [
    *_all(
        "several statements",
        REFUSED,
        "catalog",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW notes",
        "SELECT 1;;DROP VIEW notes;",
        "SELECT 1 /* ; */ ; SET threads = 1",
        "; SET threads = 1",
        "SELECT 1; -- a\nSET threads = 1",
        "",
        ";",
        "-- only a comment",
    ),
    Attack("several statements", "SELECT 1\0; DROP VIEW notes", BAD, "catalog", "the parser stops at a NUL"),
    Attack("several statements", "SELECT 1 /* unterminated", BAD, "catalog"),
    Attack("several statements", "SELECT 'unterminated; DROP VIEW notes", BAD, "catalog"),
]

NAMES = [
    *_all(
        "names that are no table",
        NO_TABLE,
        "secret",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'x.parquet'",
        'SELECT * FROM "data/*.csv"',
        "SELECT * FROM '/proc/self/environ'",
        "SELECT * FROM duckdb_settings",
        "SELECT * FROM duckdb_tables",
        'SELECT * FROM "DUCKDB_Tables"',
        "SELECT * FROM sqlite_master",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT * FROM pg_class",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM main.duckdb_views",
        "SELECT * FROM system.duckdb_settings",
        "SELECT * FROM temp.notes",
        "SELECT * FROM memory.notes",
        'SELECT * FROM "notes@1"',
        "SELECT * FROM /* a */ duckdb_views -- b",
        "SELECT * FROM range(1) r(i), LATERAL (SELECT * FROM duckdb_views WHERE i = 0)",
        "SELECT * FROM range(1) POSITIONAL JOIN duckdb_views",
        "DESCRIBE duckdb_settings",
        "SUMMARIZE duckdb_views",
        "TABLE duckdb_views",
        "FROM duckdb_views UNPIVOT (v FOR n IN (sql))",
        "SELECT * FROM ｎｏｔｅｓ",
        "SELECT * FROM \u212aey_table",
        "SELECT * FROM duckdb_views AT (VERSION => 1)",
    ),
    *_all(
        "names that are refused",
        REFUSED,
        "secret",
        "SELECT * FROM system.main.duckdb_settings",
        "SELECT * FROM system.information_schema.tables",
        "SELECT * FROM memory.main.notes",
        "WITH duckdb_tables AS (SELECT 1) SELECT * FROM (SELECT 1), duckdb_tables",
        "SELECT * FROM (WITH duckdb_views AS (SELECT 1) FROM duckdb_views) a, duckdb_views",
        "SELECT * FROM (WITH Pg_Class AS (SELECT 1) FROM pg_class) a, pg_class",
        "SELECT * FROM (WITH \"/etc/passwd\" AS (SELECT 1) SELECT 1) a, '/etc/passwd'",
        "SELECT * FROM (WITH \"x.parquet\" AS (SELECT 1) SELECT 1) a, 'x.parquet'",
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "SHOW DATABASES",
        "SHOW TABLES FROM memory",
        "SELECT * FROM (SHOW TABLES)",
        "SELECT * FROM (SHOW ALL TABLES)",
        "DESCRIBE",
        "SHOW VARIABLES",
        "PIVOT notes ON id USING count(*)",
        "SELECT 1::memory.main.attack",
        "SELECT '1'::attack",
        "SELECT DEFAULT",
    ),
    *_all(
        "names that are refused",
        BAD,
        "secret",
        "SELECT * FROM $1",
        "SELECT * FROM ?",
        "SELECT * FROM notes AT (VERSION => (SELECT 1))",
        "SELECT * FROM notes AT (TIMESTAMP => now())",
        "SELECT * FROM notes AT (VERSION => $1)",
        "SELECT * FROM notes FOR VERSION AS OF (SELECT 1)",
        "SELECT * FROM notes FOR TIMESTAMP AS OF '2026-01-01' || current_setting('x')",
        "SELECT * FROM range(3) AT (VERSION => 1)",
    ),
    *_all(
        "columns of the engine",
        BAD,
        "secret",
        "SELECT filename FROM notes",
        "SELECT file_row_number FROM notes",
        "SELECT file_index FROM notes",
        "SELECT rowid FROM notes",
        "SELECT notes.filename FROM notes",
        note="binder: the view shows the table's own columns and no others",
    ),
]

NAMES += [
    Attack(
        "names that may be a WITH query", sql, NO_TABLE | BAD, note="binder: outside of its scope there is no such name"
    )
    for sql in (
        "SELECT * FROM (WITH r AS (SELECT 1) FROM r) x, r",
        "SELECT * FROM (WITH r AS (SELECT 1) FROM r) x, recurring.r",
        "WITH a AS (FROM b), b AS (SELECT 1) FROM a",
        "SELECT (WITH secret AS (SELECT 1) FROM secret), (SELECT count(*) FROM secret)",
    )
]

PROBES = [
    *_all(
        "error-based probing",
        FUNCTION,
        "secret",
        "SELECT error('x')",
        "SELECT CASE WHEN (SELECT count(*) FROM duckdb_secrets()) > 0 THEN error('yes') END",
        "SELECT stats(id) FROM notes",
        "SELECT sleep_ms(1000)",
        "SELECT pg_sleep(1)",
        "SELECT CASE WHEN true THEN pg_sleep(5) END",
        "SELECT write_log('x')",
        "SELECT setseed(0.5)",
        "SELECT current_query()",
        "SELECT txid_current()",
        "SELECT in_search_path('memory', 'main')",
        "SELECT vector_type(1)",
    ),
    Attack("error-based probing", "SELECT CAST((SELECT max(sql) FROM duckdb_views) AS INT)", NO_TABLE),
    Attack("error-based probing", "SELECT no_such_column FROM notes", BAD, note="binder: candidates are the caller's"),
    Attack("error-based probing", "SELECT no_such_function(1)", FUNCTION),
]

DISCLOSURE = _all(
    "information about the engine",
    FUNCTION,
    "secret",
    "SELECT version()",
    "SELECT * FROM pragma_version()",
    "SELECT * FROM pragma_platform()",
    "SELECT * FROM pragma_user_agent()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM duckdb_memory()",
    "SELECT * FROM duckdb_temporary_files()",
    "SELECT * FROM duckdb_external_file_cache()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM duckdb_variables()",
    "SELECT * FROM duckdb_prepared_statements()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM pragma_database_size()",
    "SELECT * FROM pragma_storage_info('notes')",
    "SELECT * FROM pragma_table_info('notes')",
    "SELECT getenv('HOME')",
    "SELECT current_schemas(true)",
    "SELECT current_database()",
    "SELECT get_block_size('memory')",
    "SELECT has_table_privilege('secret', 'SELECT')",
    "SELECT pg_get_viewdef(1)",
    "SELECT obj_description(1)",
)

# Bombs pass the statement wall where nothing else is said: the worker's limits end them.
BOMBS = [
    *_all(
        "memory bombs",
        BOMB,
        "next",
        "SELECT list(i) FROM range(10000000000) r(i)",
        "SELECT string_agg(i::VARCHAR, ',') FROM range(10000000000) r(i)",
        "SELECT length(repeat('x', 4000000000))",
        "SELECT length(repeat(repeat('x', 60000), 60000))",
        "SELECT len(range(4000000000))",
        "SELECT count(*) FROM (SELECT i, row_number() OVER (ORDER BY random()) FROM range(1000000000) r(i))",
        "SELECT count(DISTINCT hash(i)) FROM range(10000000000) r(i)",
        "SELECT * FROM range(1000000000) r(i) ORDER BY hash(i) LIMIT 5 OFFSET 999999000",
        "SELECT histogram(i) FROM range(1000000000) r(i)",
        "SELECT count(*) FROM range(300000000) a(i) JOIN range(300000000) b(i) USING (i)",
        "SELECT list_reduce(range(100), lambda a, b: 1, 1), max(lpad('x', 2000000000, 'y'))",
        "SELECT json_group_array(i) FROM range(10000000000) r(i)",
        "SELECT len(list_transform(range(100000), lambda x: range(100000)))",
        "SELECT max(len(flatten([range(10000000) FOR x IN range(1000)])))",
        "SELECT format('{:2000000000}', 1)",
        "SELECT bit_count(repeat('1', 2000000000)::BIT)",
    ),
    *_all(
        "time bombs",
        BOMB,
        "next",
        "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c",
        "SELECT count(*) FROM range(100000000000)",
        "SELECT sum(sin(a.range * b.range)) FROM range(10000000) a, range(10000000) b",
        "SELECT count(*) FROM range(1000000) a(i) JOIN range(1000000) b(i) ON sin(a.i) < cos(b.i)",
        "SELECT max(levenshtein(repeat('ab', 100000), repeat('ba', 100000)))",
        "SELECT count(*) FROM range(10000000) r(i) WHERE regexp_matches(repeat('a', 5000), '(a|aa)*b' || i)",
    ),
    *_all(
        "recursion",
        BOMB,
        "next",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, range(10)) SELECT max(n) FROM r",
        "WITH RECURSIVE r AS (SELECT 'x' AS t UNION ALL SELECT t || t FROM r) SELECT max(length(t)) FROM r",
    ),
    *_all(
        "nesting",
        REFUSED,
        "next",
        "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
        "SELECT " + " + ".join(["1"] * 5_000),
        "SELECT " + "NOT " * 5_000 + "true",
        "SELECT " + "[" * 5_000 + "]" * 5_000,
        "SELECT * FROM " + "(SELECT * FROM " * 2_000 + "(SELECT 1)" + ")" * 2_000,
        "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "CASE WHEN true THEN " * 2_000 + "1" + " END" * 2_000,
        "SELECT NULL::" + "STRUCT(a " * 2_000 + "INT" + ")" * 2_000,
        "SELECT * FROM " + ", ".join(f"t{i}" for i in range(100)),
        "SELECT '" + "x" * 100_000 + "'",
        "SELECT 1 IN (" + ", ".join(map(str, range(30_000))) + ")",
        "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(10_000)),
    ),
    *_all(
        "width",
        BOMB | {"query_failed", "truncated", "answered"},
        "next",
        "SELECT 1 IN (" + ", ".join(map(str, range(15_000))) + ")",
        "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(5_000)),
        " UNION ALL ".join(["SELECT 1"] * 5_000),
        "SELECT * FROM " + ", ".join(f"range(2) t{i}" for i in range(200)),
        note="passes the wall; any end is good as long as the next caller is answered",
    ),
    *_all(
        "result size",
        BOMB | {"truncated"},
        "next",
        "SELECT * FROM range(100000000000)",
        "SELECT repeat('x', 1000000) FROM range(1000000)",
        "SELECT range(10000) FROM range(1000000)",
        "SELECT i, i AS j, i AS k FROM range(1000000000) r(i)",
        note="an answer is cut at the caps of rows and bytes and says that it is",
    ),
]

ATTACKS: list[Attack] = [
    *FILES,
    *NETWORK,
    *EVALUATED,
    *CHANGES,
    *COMMANDS,
    *SEVERAL,
    *NAMES,
    *PROBES,
    *DISCLOSURE,
    *BOMBS,
]
