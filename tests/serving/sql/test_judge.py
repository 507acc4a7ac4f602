"""The statement wall: what passes runs as it was written, what does not is refused for the reason it says."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest

from frazil.errors import InvalidInput
from frazil.serving.sql import TableRef
from frazil.serving.sql.refusals import BadSql, FunctionNotAllowed, SqlRefused
from frazil.serving.sql.statement.judge import MAX_TEXT_BYTES, judge_filter, judge_statement
from frazil.serving.sql.statement.syntax_tree import nodes
from frazil.serving.sql.statement.table_refs import MAX_TABLES
from tests.serving.sql.attacks import ATTACKS, Attack


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A plain engine with a few tables, under the names that a worker would give its views."""
    with duckdb.connect(config={"python_enable_replacements": False}) as connection:
        connection.execute("""
            SET TimeZone = 'UTC';
            CREATE VIEW notes AS
            SELECT i AS id, 'note ' || i AS body, i % 3 AS team, [i, i + 1] AS l FROM range(9) r(i);
            CREATE VIEW "notes@7" AS SELECT 1 AS id, 'old' AS body, 0 AS team;
            CREATE VIEW "notes@2026-01-31T10:00:00+00:00" AS SELECT 2 AS id, 'older' AS body, 0 AS team;
            CREATE SCHEMA other;
            CREATE VIEW other.tasks AS SELECT 5 AS id, {'a': 1} AS s;
            CREATE VIEW other."tasks@7" AS SELECT 6 AS id, {'a': 2} AS s;
            CREATE SCHEMA "@system";
            CREATE VIEW "@system".audit AS SELECT 'ann' AS who, 3 AS rows;
        """)
        yield connection


def table(name: str, schema: str = "main", view: str | None = None, **more: Any) -> TableRef:
    return TableRef(schema, name, (schema, view or name), **more)


def answer(engine: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Judged, put in parentheses as a worker may do it, and run."""
    return engine.execute(f"SELECT * FROM ({judge_statement(engine, sql).sql})", parameters).fetchall()


PLAIN = [
    "SELECT 1",
    "SELECT 1;",
    "SELECT 1 -- a comment",
    "SELECT 1; -- a comment; and more",
    "SELECT ';' /* ; */ ;;",
    "FROM notes",
    "TABLE notes",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT * FROM notes n JOIN other.tasks t ON n.id = t.id",
    "SELECT Notes.ID FROM NOTES",
    "SELECT main.notes.id FROM main.notes",
    "SELECT other.tasks.s.a FROM other.tasks",
    "SELECT team, sum(id) FILTER (WHERE id > 2), list(body ORDER BY id DESC) FROM notes GROUP BY ALL ORDER BY ALL",
    "SELECT team, count(*) FROM notes GROUP BY ROLLUP (team) HAVING count(*) > 1",
    "SELECT grouping(team) FROM notes GROUP BY GROUPING SETS ((team), ())",
    "SELECT id, row_number() OVER (PARTITION BY team ORDER BY id) AS n FROM notes QUALIFY n = 1",
    "SELECT lag(id, 1, 0) OVER w FROM notes WINDOW w AS (ORDER BY id)",
    "SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM notes",
    "SELECT DISTINCT ON (team) * FROM notes ORDER BY team, id LIMIT 2 OFFSET 1",
    "SELECT * EXCLUDE (body) REPLACE (id + 1 AS id) FROM notes",
    "SELECT * RENAME (id AS number) FROM notes",
    "SELECT COLUMNS('i.*'), COLUMNS(lambda c: c LIKE 'b%') FROM notes",
    "SELECT [x + 1 FOR x IN l IF x > 2], list_transform(l, lambda x: x * 2), l[1], l[1:2], l[-1] FROM notes",
    "SELECT {'a': 1}, MAP {'k': 1}, row(1, 'a'), {'a': 1}.a, MAP {'k': 1}['k']",
    "SELECT CASE team WHEN 1 THEN 'x' ELSE body END, id BETWEEN 1 AND 2, NOT true FROM notes",
    "SELECT body LIKE '%1', body NOT ILIKE 'N%', body SIMILAR TO 'n.*', body LIKE 'a$%' ESCAPE '$' FROM notes",
    "SELECT coalesce(NULL, 1), nullif(1, 2), ifnull(NULL, 3), if(true, 1, 2), try(1), greatest(1, 2)",
    "SELECT id IN (SELECT id FROM other.tasks), EXISTS (FROM other.tasks) FROM notes",
    "SELECT (SELECT max(id) FROM notes), ARRAY(SELECT 1)",
    "SELECT id = ANY (SELECT id FROM notes), id <> ALL ([1, 2]) FROM notes",
    "SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 3 INTERSECT SELECT 4",
    "SELECT 1 AS a UNION BY NAME SELECT 2 AS b",
    "WITH a AS (SELECT 1 AS x), b AS MATERIALIZED (FROM a) SELECT * FROM a, b",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "WITH RECURSIVE r(a, n) USING KEY (a) AS "
    "(SELECT 1, 0 UNION SELECT r.a, x.n + 1 FROM r, recurring.r x WHERE x.n < 3) FROM r",
    "SELECT * FROM range(3) r(i), LATERAL (SELECT i * 2 AS j), unnest([1, 2]) u(k), generate_series(1, 2) g(m)",
    "SELECT unnest({'a': [1, 2]}, recursive := true)",
    "SELECT * FROM notes ASOF JOIN other.tasks ON notes.id >= tasks.id",
    "SELECT * FROM notes POSITIONAL JOIN other.tasks",
    "SELECT * FROM notes SEMI JOIN other.tasks USING (id)",
    "SELECT * FROM notes TABLESAMPLE 50% (bernoulli, 1)",
    "SELECT * FROM notes USING SAMPLE reservoir(2 ROWS)",
    "FROM notes PIVOT (count(*) FOR team IN (0, 1))",
    "FROM (SELECT id, team FROM notes) UNPIVOT (v FOR n IN (id, team))",
    "SELECT '{\"a\": [1]}'::JSON ->> '$.a[0]', json_extract('{}', '$.b'), to_json({'a': 1})",
    "SELECT * FROM json_each('{\"a\": 1}')",
    "SELECT now() > TIMESTAMP '2020-01-01', current_date > DATE '2020-01-01', INTERVAL 3 DAYS",
    "SELECT TIMESTAMP '2026-01-31 12:00:00' AT TIME ZONE 'Europe/Berlin', extract(year FROM DATE '2026-01-31')",
    "SELECT 'a'::VARCHAR(3), 1::DECIMAL(5, 2), [1]::BIGINT[], {'a': 1}::STRUCT(a BIGINT), TRY_CAST('x' AS INT)",
    "SELECT '1'::UNION(n INT, s VARCHAR), [1, 2]::INT[2], 'x'::BLOB, 'a'::ENUM('a'), 'a' COLLATE nocase = 'A'",
    "SELECT body.upper().lower(), substring(body FROM 1 FOR 2), trim(BOTH 'n' FROM body), body ~ 'n.*' FROM notes",
    "SELECT 1 + 2 * 3 // 4 % 5, 2 ** 3, 7 & 3, 1 << 2, ~1, -1, 'a' || 'b', @(-1), 5!",
    "DESCRIBE notes",
    "DESCRIBE SELECT * FROM notes",
    "SUMMARIZE notes",
    "SELECT column_name FROM (DESCRIBE other.tasks)",
    "SELECT notes FROM notes",
    "SELECT #1 FROM notes ORDER BY 1",
    'SELECT \'for version as of 3; -- not here\', "id" AS "FOR VERSION AS OF 7" FROM notes /* FOR VERSION AS OF 7 */',
]


@pytest.mark.parametrize("sql", PLAIN)
def test_a_select_runs_as_it_was_written(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    judged = judge_statement(engine, sql)
    assert judged.sql.strip() in sql
    found = engine.execute(f"SELECT * FROM ({judged.sql})").fetchall()
    if "SAMPLE" not in sql:
        assert sorted(found, key=repr) == sorted(engine.execute(sql).fetchall(), key=repr)


@pytest.mark.parametrize("sql", PLAIN)
def test_the_walk_sees_every_part_of_the_tree(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    row = engine.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert row is not None
    statement = json.loads(row[0])["statements"][0]
    # Only what is written out in the text, a number or a string, has no parts to judge.
    literals = {id(node.get("value")) for kind, node in nodes(statement) if kind == "value"}
    seen = {id(node) for _, node in nodes(statement)} | literals
    waiting = [statement]
    while waiting:
        part = waiting.pop()
        assert not isinstance(part, dict) or id(part) in seen, part
        waiting.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT\u00a0';'\u2003;", [(";",)]),
        ("SELECT\u00a0\u00a01, ';;;;;;;;;;' AS a;;", [(1, ";;;;;;;;;;")]),
        ("SELECT\u00a0$$ ;$$", [(" ;",)]),
        ("SELECT 1 AS x,\u00a0$$ ; -- $$ ;", [(1, " ; -- ")]),
        ("SELECT 1 AS x,\u00a0$a$ ;$a$", [(1, " ;")]),
        ("SELECT 'it''s; --';", [("it's; --",)]),
    ],
)
def test_a_semicolon_is_cut_where_the_parser_sees_one(
    engine: duckdb.DuckDBPyConnection, sql: str, rows: list[tuple[Any, ...]]
) -> None:
    assert answer(engine, sql) == engine.execute(sql).fetchall() == rows


def test_parameters_stay_parameters(engine: duckdb.DuckDBPyConnection) -> None:
    assert answer(engine, "SELECT id FROM notes WHERE id = ? OR id = ? LIMIT ?", [1, 2, 5]) == [(1,), (2,)]
    assert answer(engine, "SELECT id FROM notes WHERE id = $b AND $a", {"a": True, "b": 3}) == [(3,)]
    assert answer(engine, "SELECT id FROM notes AT (VERSION => 7) WHERE id = $b", {"b": 1}) == [(1,)]


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", []),
        ('FROM Notes, main.NOTES, "nOtes"', [table("notes")]),
        ("FROM other.tasks", [table("tasks", "other")]),
        ('FROM "ÄÖ"', [table("ÄÖ")]),
        ("SELECT (SELECT count(*) FROM a) FROM b WHERE EXISTS (FROM c) ORDER BY (SELECT 1 FROM d)", list("abcd")),
        ("WITH x AS (FROM a) SELECT * FROM x JOIN b USING (id)", [table("x", certain=False), *"ab"]),
        ("SELECT * FROM (WITH X AS (SELECT 1) FROM x) y, x", [table("x", certain=False)]),
        ("WITH x AS (SELECT 1) SELECT * FROM other.x", [table("x", "other")]),
        ("SUMMARIZE FROM a UNION ALL FROM b", list("ab")),
        ("FROM a PIVOT (max(x) FOR y IN (1))", ["a"]),
        ("FROM 'x.parquet'", [table("x.parquet")]),
        ("FROM duckdb_tables", [table("duckdb_tables")]),
        ("FROM system.audit", [TableRef("system", "audit", ("@system", "audit"))]),
        ("FROM pg_catalog.pg_class", [TableRef("pg_catalog", "pg_class", ("@pg_catalog", "pg_class"))]),
        ("FROM a AT (VERSION => 7)", [table("a", view="a@7", version=7)]),
        ("WITH a AS (FROM a AT (VERSION => 7)) FROM a", [table("a", view="a@7", version=7), table("a", certain=False)]),
    ],
)
def test_every_table_is_found(engine: duckdb.DuckDBPyConnection, sql: str, tables: list[TableRef | str]) -> None:
    expected = {table(each) if isinstance(each, str) else each for each in tables}
    assert set(judge_statement(engine, sql).tables) == expected


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT notes.id, body FROM notes AT (VERSION => 7)", [(1, "old")]),
        ("SELECT notes.id FROM main.notes FOR VERSION AS OF 7", [(1,)]),
        ("SELECT main.notes.id FROM main.notes FOR VERSION AS OF 7 WHERE main.notes.team = 0", [(1,)]),
        ("SELECT n.id FROM notes FOR VERSION AS OF 7 AS n", [(1,)]),
        ("SELECT n.id FROM notes for /* x */ version as\nof 7 n", [(1,)]),
        ('SELECT "a n".id FROM notes FOR VERSION AS OF 7 "a n" WHERE true', [(1,)]),
        ("SELECT x.id FROM notes AS x AT (VERSION => '7')", [(1,)]),
        ("SELECT id FROM notes FOR TIMESTAMP AS OF '2026-01-31T10:00:00Z'", [(2,)]),
        ("SELECT id FROM notes FOR SYSTEM_TIME AS OF '2026-01-31 12:00:00+02:00'", [(2,)]),
        ("SELECT id FROM notes FOR TIMESTAMP AS OF TIMESTAMP '2026-01-31 10:00:00'", [(2,)]),
        ("SELECT id FROM notes FOR TIMESTAMP AS OF TIMESTAMP WITH TIME ZONE '2026-01-31 10:00:00Z'", [(2,)]),
        ("SELECT id FROM notes AT (TIMESTAMP => TIMESTAMPTZ '2026-01-31 10:00:00+00:00')", [(2,)]),
        ("SELECT tasks.s.a, other.tasks.id FROM other.tasks FOR VERSION AS OF 7", [(2, 6)]),
        (
            "SELECT o.id, n.id FROM notes FOR VERSION AS OF 7 o JOIN notes n ON n.id = o.id + 1, "
            "notes FOR TIMESTAMP AS OF '2026-01-31T10:00:00Z' t ORDER BY 1",
            [(1, 2)],
        ),
        ("SELECT 'é', id FROM notes FOR VERSION AS OF 7 -- FOR VERSION AS OF 8", [("é", 1)]),
        ("SELECT system.audit.who, audit.rows FROM system.audit WHERE system.audit.rows > 1", [("ann", 3)]),
        ("SELECT count(*) FROM notes AT (VERSION => 7) WHERE body LIKE 'o%' AND team IN (0, 1)", [(1,)]),
        ("WITH o AS (FROM notes AT (VERSION => 7)) SELECT id, sum(id) OVER () FROM o", [(1, 1)]),
    ],
)
def test_a_table_as_it_was(engine: duckdb.DuckDBPyConnection, sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert answer(engine, sql) == rows


def test_a_time_without_a_zone_is_utc(engine: duckdb.DuckDBPyConnection) -> None:
    for text in ("2026-01-31", "2026-01-31 00:00", "2026-01-31T01:00:00+01:00"):
        (found,) = judge_statement(engine, f"FROM notes FOR TIMESTAMP AS OF '{text}'").tables
        assert found.as_of == datetime(2026, 1, 31, tzinfo=UTC)


NO_MOMENTS = """
VERSION => 1.5 | VERSION => -1 | VERSION => 9223372036854775808 | VERSION => 'x' | VERSION => NULL | VERSION => '٣'
TIMESTAMP => 'noon' | TIMESTAMP => 5 | TIMESTAMP => '' | TIMESTAMP => '0001-01-01T00:00:00+10:00' | VERSION => 1 + 1
VERSION => CAST(1.5 AS VARCHAR) | TIMESTAMP => 5::TIMESTAMP
"""


@pytest.mark.parametrize("at", NO_MOMENTS.strip().replace("\n", " | ").split(" | "))
def test_at_needs_a_snapshot_or_a_time(engine: duckdb.DuckDBPyConnection, at: str) -> None:
    with pytest.raises(BadSql):
        judge_statement(engine, f"FROM notes AT ({at})")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.family}: {attack.sql[:60]!r}")
def test_an_attack_is_refused_or_names_its_tables(engine: duckdb.DuckDBPyConnection, attack: Attack) -> None:
    if attack.judged:
        with pytest.raises(InvalidInput) as refused:
            judge_statement(engine, attack.sql)
        assert refused.value.code in attack.expect
        assert refused.value.message and "\n" not in refused.value.message and len(refused.value.message) < 600
        return
    judged = judge_statement(engine, attack.sql)
    if attack.expect == {"table_not_found"}:
        known = {"notes", "tasks", "audit"}
        assert any(each.certain and (each.name not in known or each.schema != "main") for each in judged.tables)


def test_a_name_that_may_be_a_with_query_never_reaches_the_engines_own(engine: duckdb.DuckDBPyConnection) -> None:
    """Run as they are, with no view made for the uncertain names: each ends at a name that nobody knows."""
    outside = [attack for attack in ATTACKS if attack.family == "names that may be a WITH query"]
    assert len(outside) == 4
    for attack in outside:
        assert not any(each.certain for each in judge_statement(engine, attack.sql).tables)
        with pytest.raises(duckdb.Error, match=r"does not exist|Circular|not found"):
            engine.execute(judge_statement(engine, attack.sql).sql)


def test_judging_changes_nothing(engine: duckdb.DuckDBPyConnection) -> None:
    def state() -> list[Any]:
        asked = "views tables types schemas databases secrets variables prepared_statements".split()
        counts = [engine.execute(f"SELECT count(*) FROM duckdb_{each}()").fetchone() for each in asked]
        return [*counts, engine.execute("SELECT name, value FROM duckdb_settings() ORDER BY ALL").fetchall()]

    before = state()
    for attack in ATTACKS:
        if attack.judged and attack.nothing in ("catalog", "setting"):
            with contextlib.suppress(InvalidInput):
                judge_statement(engine, attack.sql)
    assert state() == before


FILTERS = [
    "team = 'north'",
    "lower(body) LIKE 'a%' AND level < 3 OR NOT done",
    "id IN (1, 2) -- mine",
    "true",
    "s.a IS NULL",
]


@pytest.mark.parametrize("expression", FILTERS)
def test_an_expression_over_one_row_is_a_filter(engine: duckdb.DuckDBPyConnection, expression: str) -> None:
    judge_filter(engine, expression)


NO_FILTERS = """
a) OR (b | a) -- | a /* | a, b | a AS x | a x | a FROM notes | a; SELECT 1 | a WHERE b | a UNION SELECT 1 | -- nothing
EXISTS (SELECT 1) | (SELECT true) | id IN (SELECT 1) | sum(a) > 1 | count(*) > 1 | row_number() OVER () = 1 | * = 1
COLUMNS('a') = 1 | ? = 1 | $a = 1 | #1 = 1 | unnest([true]) | a ORDER BY 1 | a LIMIT 1 | DISTINCT a | a::attack
current_setting('x') = 'y' | true\0 OR true | a) UNION (SELECT 1 | 1) FROM notes WHERE (true | a QUALIFY b | a HAVING b
"""


@pytest.mark.parametrize("expression", NO_FILTERS.strip().replace("\n", " | ").split(" | "))
def test_anything_else_is_not(engine: duckdb.DuckDBPyConnection, expression: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        judge_filter(engine, expression)
    assert refused.value.code in ("bad_sql", "sql_refused", "function_not_allowed")


def test_what_the_parser_says_is_passed_on(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(BadSql) as bad:
        judge_statement(engine, "SELECT 1\n FROM notes WHERE")
    assert bad.value.message == "syntax error at end of input" and bad.value.details == {"position": 26}
    for sql, word in [("EXPLAIN SELECT 1", "EXPLAIN"), ("copy notes to 'x'", "COPY"), ("PIVOT notes ON id", "PIVOT")]:
        with pytest.raises(SqlRefused, match=word) as refused:
            judge_statement(engine, sql)
        assert refused.value.hint
    with pytest.raises(FunctionNotAllowed, match="read_csv"):
        judge_statement(engine, "FROM read_csv('x')")


def test_the_limits(engine: duckdb.DuckDBPyConnection) -> None:
    fits = "SELECT '" + "x" * (MAX_TEXT_BYTES - 9) + "'"
    assert len(judge_statement(engine, fits).sql) == MAX_TEXT_BYTES
    with pytest.raises(SqlRefused):
        judge_statement(engine, fits + " ")
    names = [f"t{number}" for number in range(MAX_TABLES + 1)]
    assert len(judge_statement(engine, "FROM " + ", ".join(names[1:])).tables) == MAX_TABLES
    with pytest.raises(SqlRefused):
        judge_statement(engine, "FROM " + ", ".join(names))
    judge_statement(engine, "SELECT " + " + ".join(["1"] * 200))
    judge_statement(engine, "SELECT " + " AND ".join(["true"] * 2_000))
    with pytest.raises(SqlRefused, match="deep"):
        judge_statement(engine, "FROM notes AT (VERSION => 7) WHERE 1 = " + " + ".join(["1"] * 400))


def test_what_the_table_of_shapes_does_not_know_is_refused(engine: duckdb.DuckDBPyConnection) -> None:
    """As a later DuckDB might write it: a new kind, a new key, a key less, another sort of value, anywhere."""
    sql = "WITH a AS (SELECT 1 AS x) SELECT sum(x::INT) FILTER (WHERE x > 0) FROM a, range(3) ORDER BY 1 LIMIT 2"
    row = engine.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert row is not None
    statement = json.loads(row[0])["statements"][0]
    count = len(list(nodes(statement)))
    assert count > 30
    for number in range(count):
        for change in (_new_key, _lost_key, _new_kind, _other_value):
            changed = copy.deepcopy(statement)
            node = list(nodes(changed))[number][1]
            change(node)
            with pytest.raises(SqlRefused):
                list(nodes(changed))


def _new_key(node: dict[str, Any]) -> None:
    node["hidden"] = None


def _lost_key(node: dict[str, Any]) -> None:
    del node[next(iter(node))]


def _new_kind(node: dict[str, Any]) -> None:
    tell = "class" if "class" in node else "type"
    if isinstance(node.get(tell), str) and len(node) > 3:
        node[tell] = "SOMETHING_NEW"
    else:
        node["hidden"] = {}


def _other_value(node: dict[str, Any]) -> None:
    key = next(key for key in node if key != "value" or "is_null" not in node)
    node[key] = 1.5
