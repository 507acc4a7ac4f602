"""Which tables a source means, and what is known of them."""

from __future__ import annotations

import pytest

from frazil.errors import InvalidInput, Misconfigured
from frazil.pipeline.sources.postgres.exported_snapshot import exported
from frazil.pipeline.sources.postgres.read import plan_table
from frazil.pipeline.sources.postgres.source_tables import refuse_old, select
from frazil.pipeline.sources.postgres.table_ranges import ranges_of
from tests.pipeline.sources.postgres.conftest import Source, dsn_of, psql, read_table

ZOO = (
    "CREATE TABLE invoices (id int PRIMARY KEY)",
    "CREATE TABLE invoice_lines (b int, a int, PRIMARY KEY (a, b))",
    "CREATE UNLOGGED TABLE scratch (id int)",
    'CREATE TABLE "Odd ""Name""; --" ("Mixed Case" int, "select" text, "ä ö" int, "a.b" int, "{}" int)',
    'INSERT INTO "Odd ""Name""; --" VALUES (1, $$x$$, 3, 4, 5)',
    "CREATE VIEW seen AS SELECT 7 AS n",
    "CREATE MATERIALIZED VIEW kept AS SELECT generate_series(1, 3) AS n",
    "CREATE TABLE days (day date, n int) PARTITION BY RANGE (day)",
    "CREATE TABLE days_2023 PARTITION OF days FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')",
    "CREATE TABLE days_2024 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') PARTITION BY LIST (n)",
    "CREATE TABLE days_2024_rest (n int, day date)",
    "ALTER TABLE days_2024 ATTACH PARTITION days_2024_rest DEFAULT",
    "INSERT INTO days VALUES ('2023-05-05', 1), ('2024-05-05', 2), ('2024-06-06', 3)",
    "CREATE TABLE parent (n int)",
    "CREATE TABLE child (more int) INHERITS (parent)",
    "INSERT INTO parent VALUES (1)",
    "INSERT INTO child VALUES (2, 2)",
)


def names(source: Source, *tables: str, exclude: tuple[str, ...] = ()) -> list[str]:
    return [one.name for one in select(source.dsn, source.schema, tables, exclude).relations]


def test_names_patterns_and_all(source: Source) -> None:
    source.run(*ZOO)
    everything = ['Odd "Name"; --', "child", "days", "invoice_lines", "invoices", "parent", "scratch"]
    assert names(source, "*") == everything
    assert names(source, "invoice*") == ["invoice_lines", "invoices"]
    assert names(source, "*", exclude=("invoice*", "days", "Odd*")) == ["child", "parent", "scratch"]
    assert names(source, "seen", "kept", "days_2023", "invoices") == ["days_2023", "invoices", "kept", "seen"]
    nothing = select(source.dsn, source.schema, ["Invoices", "invoices", "nope*"])
    assert [one.name for one in nothing.relations] == ["invoices"]
    assert [(one.name, one.error.code) for one in nothing.refused] == [
        ("Invoices", "postgres_table_missing"),
        ("nope*", "postgres_table_missing"),
    ]


def test_every_kind_gives_each_row_once(source: Source) -> None:
    source.run(*ZOO)
    read = source.read_all(["*", "seen", "kept"])
    assert sorted(read["days"].column("n").to_pylist()) == [1, 2, 3]
    assert read["seen"].to_pylist() == [{"n": 7}]
    assert sorted(read["kept"].column("n").to_pylist()) == [1, 2, 3]
    assert read["parent"].to_pylist() == [{"n": 1}] and read["child"].to_pylist() == [{"n": 2, "more": 2}]
    assert read['Odd "Name"; --'].to_pylist() == [{"mixed case": 1, "select": "x", "ä ö": 3, "a.b": 4, "{}": 5}]


def test_a_partitioned_table_is_read_by_its_leaves(source: Source) -> None:
    source.run(*ZOO)
    assert [str(one.relation.name) for one in ranges_of(source.describe("days"))] == ["days_2023", "days_2024_rest"]


def test_partitions_that_may_not_be_read_alone_are_read_through_their_table(source: Source) -> None:
    source.run(*ZOO, "CREATE ROLE reader LOGIN PASSWORD 'x'", f"GRANT USAGE ON SCHEMA {source.schema} TO reader")
    source.run("GRANT SELECT ON days TO reader", "GRANT SELECT ON invoices TO reader")
    dsn = dsn_of(source.server, user="reader", password="x")
    with exported(dsn, select(dsn, source.schema, ["*"])) as snapshot:
        assert [table.relation.name for table in snapshot.tables] == ["days", "invoices"]
        assert {one.error.code for one in snapshot.refused} == {"postgres_denied"} and len(snapshot.refused) == 5
        days = snapshot.tables[0]
        assert [str(one) for one in ranges_of(days)] == [f"{source.schema}.days"]
        assert sorted(read_table(snapshot, days, plan_table(days, str)).column("n").to_pylist()) == [1, 2, 3]
    source.run("DROP OWNED BY reader", "DROP ROLE reader")


def test_row_security_refuses_instead_of_hiding_rows(source: Source) -> None:
    source.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    source.run("CREATE ROLE tenant LOGIN PASSWORD 'x'", "CREATE POLICY own ON t USING (n = 1)")
    source.run(f"GRANT USAGE ON SCHEMA {source.schema} TO tenant", "GRANT SELECT ON t TO tenant")
    dsn = dsn_of(source.server, user="tenant", password="x")
    with exported(dsn, select(dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        with pytest.raises(Exception, match="row-level security") as caught:
            read_table(snapshot, table, plan_table(table, str))
    assert getattr(caught.value, "code", "") == "postgres_row_security"
    source.run("DROP OWNED BY tenant", "DROP ROLE tenant")


def test_a_foreign_table_is_read_in_one_range(source: Source) -> None:
    source.run(
        "CREATE TABLE there (n int)",
        "INSERT INTO there SELECT generate_series(1, 5)",
        f"CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host '127.0.0.1', port '{source.server.port}', dbname 'postgres')",
        "CREATE USER MAPPING FOR frazil SERVER other OPTIONS (user 'frazil', password 'not-a-secret')",
        f"CREATE FOREIGN TABLE here (n int) SERVER other OPTIONS (schema_name '{source.schema}', table_name 'there')",
    )
    try:
        assert "here" not in names(source, "*")
        assert sorted(source.read("here").column("n").to_pylist()) == [1, 2, 3, 4, 5]
        assert [one.condition for one in ranges_of(source.describe("here"))] == [""]
    finally:
        source.run("DROP SERVER other CASCADE")


def test_columns_keys_and_sizes(source: Source) -> None:
    source.run("CREATE TABLE t (id bigint NOT NULL, note varchar(9), b int, PRIMARY KEY (b, id))")
    assert source.describe("t").rows_estimate is None
    source.run("INSERT INTO t SELECT n, 'x', 1 FROM generate_series(1, 1000) n", "ANALYZE t")
    table = source.describe("t")
    assert [(one.name, one.declared, one.not_null) for one in table.columns] == [
        ("id", "bigint", True),
        ("note", "character varying(9)", False),
        ("b", "integer", True),
    ]
    assert table.primary_key == ("b", "id")
    assert table.rows_estimate == 1000 and table.bytes >= 1000 * 30


def test_a_server_that_is_too_old_is_refused() -> None:
    refuse_old(120_000)
    with pytest.raises(Misconfigured, match="is Postgres 11") as caught:
        refuse_old(110_022)
    assert caught.value.code == "postgres_too_old"


def test_two_columns_with_one_clean_name_are_refused(source: Source) -> None:
    source.run('CREATE TABLE t ("Name" int, name int)')
    with pytest.raises(InvalidInput, match="'Name' and 'name'") as caught:
        plan_table(source.describe("t"), str.lower)
    assert caught.value.code == "column_names_collide"


def test_a_dsn_with_a_strange_session_reads_the_same(source: Source) -> None:
    psql(source.server, "CREATE ROLE strange LOGIN SUPERUSER PASSWORD 'x'")
    for setting in (
        "TimeZone = 'Asia/Kolkata'",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'sql_standard'",
        "extra_float_digits = -5",
        "bytea_output = 'escape'",
        "client_encoding = 'LATIN1'",
    ):
        psql(source.server, f"ALTER ROLE strange SET {setting}")
    source.run(
        "CREATE TABLE t (i interval, r tstzrange, p point, s text, j json)",
        "INSERT INTO t VALUES ('1 mon 2 days', '[2024-02-01 00:00+00,)', '(0.1,0.3)', '→ü', '[\"→\"]')",
    )
    dsn = dsn_of(source.server, user="strange", password="x")
    strange = Source(source.server, source.schema, dsn)
    assert (
        strange.read("t").to_pylist()
        == source.read("t").to_pylist()
        == [{"i": "P1M2D", "r": '["2024-02-01 00:00:00+00",)', "p": "(0.1,0.3)", "s": "→ü", "j": '["→"]'}]
    )
    psql(source.server, "DROP ROLE strange")
