"""Every line of the table of types, with real values at their extremes, through a real server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import InvalidInput
from frazil.events.declaration import parse_type
from frazil.pipeline.sources.postgres.exported_snapshot import exported
from frazil.pipeline.sources.postgres.read import plan_table, read_range
from frazil.pipeline.sources.postgres.source_tables import select
from frazil.pipeline.sources.postgres.table_ranges import ranges_of
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy
from tests.contract.servers import PostgresServer
from tests.pipeline.sources.postgres.conftest import Source, dsn_of, psql
from tests.pipeline.sources.postgres.fidelity import FIDELITY, fidelity_table

PAGE = Path(__file__).parents[4] / "docs" / "postgres-types.md"
ALL_UNICODE = "".join(chr(n) for n in range(1, 0x110000) if not 0xD800 <= n <= 0xDFFF)


@dataclass(frozen=True)
class Case:
    line: str
    """`Fidelity.postgres`"""
    declared: str
    becomes: str
    values: dict[str, Any]
    """SQL text of a value → what is read."""


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


CASES = [
    Case("smallint", "smallint", "int", {"-32768": -32768, "32767": 32767, "null": None}),
    Case("integer", "integer", "int", {"-2147483648": -(2**31), "2147483647": 2**31 - 1, "0": 0}),
    Case("bigint", "bigint", "long", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    Case(
        "numeric(p,s)",
        "numeric(38,10)",
        "decimal(38,10)",
        {
            "9999999999999999999999999999.9999999999": Decimal("9999999999999999999999999999.9999999999"),
            "-9999999999999999999999999999.9999999999": Decimal("-9999999999999999999999999999.9999999999"),
            "0.0000000001": Decimal("0.0000000001"),
            "0": Decimal("0E-10"),
            "null": None,
        },
    ),
    Case("numeric(p,s)", "numeric(5)", "decimal(5,0)", {"99999": Decimal(99999), "-1": Decimal(-1)}),
    Case("numeric(p,s), s < 0", "numeric(3,-2)", "decimal(5,0)", {"99940": Decimal(99900), "-150": Decimal(-200)}),
    Case("numeric(p,s), s > p", "numeric(2,4)", "decimal(4,4)", {"0.0099": Decimal("0.0099"), "0": Decimal("0E-4")}),
    Case(
        "numeric, or p > 38",
        "numeric",
        "string",
        {
            "'NaN'": "NaN",
            "'Infinity'": "Infinity",
            "'-Infinity'": "-Infinity",
            "1.500": "1.500",
            "1e-30": "0.000000000000000000000000000001",
            "123456789012345678901234567890123456789012345.6789": "123456789012345678901234567890123456789012345.6789",
            "null": None,
        },
    ),
    Case("numeric, or p > 38", "numeric(50,2)", "string", {"1" * 48: "1" * 48 + ".00"}),
    Case(
        "real",
        "real",
        "float",
        {"'NaN'": math.nan, "'-Infinity'": -math.inf, "1.5": 1.5, "'1e-45'": 1.401298464324817e-45},
    ),
    Case(
        "double precision",
        "double precision",
        "double",
        {
            "'NaN'": math.nan,
            "'Infinity'": math.inf,
            "'1.7976931348623157e308'": 1.7976931348623157e308,
            "0.1": 0.1,
            "'5e-324'": 5e-324,
        },
    ),
    Case("money", "money", "string", {"'-1234.5'": "-1234.50", "'92233720368547758.07'": "92233720368547758.07"}),
    Case("boolean", "boolean", "bool", {"true": True, "false": False, "null": None}),
    Case(
        "text",
        "text",
        "string",
        {
            "''": "",
            "null": None,
            "' x '": " x ",
            "E'a\\nb\\tc'": "a\nb\tc",
            "'null'": "null",
            "'\\N'": "\\N",
            "(SELECT string_agg(chr(n), '' ORDER BY n) FROM generate_series(1, 1114111) n "
            "WHERE n NOT BETWEEN 55296 AND 57343)": ALL_UNICODE,
        },
    ),
    Case("varchar(n)", "varchar(3)", "string", {"'äöü'": "äöü", "''": "", "null": None}),
    Case("char(n)", "char(5)", "string", {"'ab'": "ab   ", "''": "     ", "null": None}),
    Case('"char"', '"char"', "string", {"'x'": "x", "''": ""}),
    Case("name", "name", "string", {"'pg_class'": "pg_class"}),
    Case("citext", "citext", "string", {"'MiXed'": "MiXed", "''": "", "null": None}),
    Case("bytea", "bytea", "binary", {"'\\x00ff00'": b"\x00\xff\x00", "''": b"", "null": None}),
    Case("date", "date", "date", {"'0001-01-01'": date(1, 1, 1), "'9999-12-31'": date(9999, 12, 31), "null": None}),
    Case(
        "timestamp",
        "timestamp",
        "timestamp",
        {"'2024-03-31 02:30:00.000001'": at(2024, 3, 31, 2, 30, 0, 1), "'0001-01-01'": at(1, 1, 1), "null": None},
    ),
    Case("timestamp", "timestamp(0)", "timestamp", {"'1969-12-31 23:59:59'": at(1969, 12, 31, 23, 59, 59)}),
    Case(
        "timestamptz",
        "timestamptz",
        "timestamp",
        {
            "'2024-01-01 00:00:00+05:30'": at(2023, 12, 31, 18, 30),
            "'9999-12-31 23:59:59.999999+00'": at(9999, 12, 31, 23, 59, 59, 999999),
        },
    ),
    Case("time", "time", "string", {"'24:00:00'": "24:00:00", "'00:00:00.000001'": "00:00:00.000001"}),
    Case("timetz", "timetz", "string", {"'12:00:00+02'": "12:00:00+02", "'24:00:00-15:59'": "24:00:00-15:59"}),
    Case(
        "interval",
        "interval",
        "string",
        {
            "'1 mon 3 days 04:05:06.789'": "P1M3DT4H5M6.789S",
            "'-178000000 years'": "P-178000000Y",
            "'0'": "PT0S",
            "null": None,
        },
    ),
    Case(
        "uuid",
        "uuid",
        "string",
        {"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "null": None},
    ),
    Case("json", "json", "json", {'\'{"b" : 1,  "b":2}\'': '{"b" : 1,  "b":2}', "'null'": "null", "null": None}),
    Case(
        "jsonb",
        "jsonb",
        "json",
        {
            '\'{"b":1,  "a":12345678901234567890.10}\'': '{"a": 12345678901234567890.10, "b": 1}',
            "'\"\"'": '""',
            "'null'": "null",
            "null": None,
        },
    ),
    Case("xml", "xml", "string", {"'<a>ä</a>'": "<a>ä</a>", "null": None}),
    Case("inet", "inet", "string", {"'10.0.0.1'": "10.0.0.1/32", "'::1/64'": "::1/64"}),
    Case("cidr", "cidr", "string", {"'10.0.0.0/8'": "10.0.0.0/8"}),
    Case("macaddr", "macaddr", "string", {"'08-00-2b-01-02-03'": "08:00:2b:01:02:03"}),
    Case("macaddr8", "macaddr8", "string", {"'08002b0102030405'": "08:00:2b:01:02:03:04:05"}),
    Case("bit(n)", "bit(3)", "string", {"B'101'": "101", "null": None}),
    Case("bit varying(n)", "bit varying(5)", "string", {"B''": "", "B'00'": "00"}),
    Case("range", "int4range", "string", {"'[1,3]'": "[1,4)", "'empty'": "empty", "'(,)'": "(,)"}),
    Case("range", "tstzrange", "string", {"'[2024-01-01 00:00+05:30,)'": '["2023-12-31 18:30:00+00",)'}),
    Case("range", "span", "string", {"'[1.5,2)'": "[1.5,2)"}),
    Case("multirange", "int4multirange", "string", {"'{[1,3),[5,7)}'": "{[1,3),[5,7)}", "'{}'": "{}"}),
    Case("enum", "mood", "string", {"'it''s ok'": "it's ok", "'süß'": "süß", "null": None}),
    Case("domain", "posint", "int", {"7": 7, "null": None}),
    Case("domain", "price", "decimal(10,2)", {"1.5": Decimal("1.50")}),
    Case("domain", "price_of_prices", "decimal(10,2)", {"99999999.99": Decimal("99999999.99")}),
    Case("domain", "ints", "list<int>", {"'{1,null}'": [1, None]}),
    Case(
        "array", "int[]", "list<int>", {"'{1,null,3}'": [1, None, 3], "'{}'": [], "null": None, "'[5:6]={1,2}'": [1, 2]}
    ),
    Case("array", "smallint[]", "list<int>", {"'{-32768}'": [-32768]}),
    Case("array", "text[]", "list<string>", {'\'{a,NULL,"","NULL","{x}"}\'': ["a", None, "", "NULL", "{x}"]}),
    Case("array", "char(2)[]", "list<string>", {"'{a}'": ["a "]}),
    Case("array", "numeric(10,2)[]", "list<decimal(10,2)>", {"'{1.5,null}'": [Decimal("1.50"), None]}),
    Case("array", "numeric[]", "list<string>", {"'{NaN,1.50}'": ["NaN", "1.50"]}),
    Case("array", "date[]", "list<date>", {"'{2024-02-29,null}'": [date(2024, 2, 29), None]}),
    Case("array", "timestamp[]", "list<timestamp>", {"'{2024-02-29}'": [at(2024, 2, 29)], "null": None}),
    Case("array", "timestamptz[]", "list<timestamp>", {"'{2024-02-29 00:00+02}'": [at(2024, 2, 28, 22)]}),
    Case("array", "bytea[]", "list<binary>", {"ARRAY['\\x00'::bytea, null]": [b"\x00", None]}),
    Case("array", "bool[]", "list<bool>", {"'{t,f}'": [True, False]}),
    Case("array", "bigint[]", "list<long>", {"'{9223372036854775807}'": [2**63 - 1]}),
    Case("array", "float8[]", "list<double>", {"'{1.5,-Infinity}'": [1.5, -math.inf]}),
    Case(
        "array",
        "uuid[]",
        "list<string>",
        {"'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]},
    ),
    Case("array", "mood[]", "list<string>", {"'{süß,null}'": ["süß", None]}),
    Case("array", "posint[]", "list<int>", {"'{1,null}'": [1, None]}),
    Case("array", "price[]", "list<decimal(10,2)>", {"'{1}'": [Decimal("1.00")]}),
    Case("array", "jsonb[]", "list<json>", {"ARRAY['{\"a\":1}'::jsonb, null]": ['{"a": 1}', None]}),
    Case("array", "interval[]", "list<string>", {"'{1 day}'": ["P1D"]}),
    Case("array", "money[]", "list<string>", {"'{1.5}'": ["1.50"]}),
    Case("array", "oid[]", "list<long>", {"'{4294967295}'": [4294967295]}),
    Case(
        "array of several dimensions",
        "int[][]",
        "json",
        {"'{{1,2},{3,4}}'": "[[1,2],[3,4]]", "'{1}'": "[1]", "null": None},
    ),
    Case("array of composites", "pair[]", "json", {"ARRAY[ROW(1,'x')::pair]": '[{"a":1,"b":"x"}]'}),
    Case("array of composites", "hstore[]", "json", {"ARRAY['a=>1'::hstore]": '[{"a": "1"}]'}),
    Case(
        "composite",
        "pair",
        "json",
        {"ROW(1,'x\"y')": '{"a":1,"b":"x\\"y"}', "ROW(null,null)": '{"a":null,"b":null}', "null": None},
    ),
    Case("hstore", "hstore", "json", {"'a=>1, b=>NULL'": '{"a": "1", "b": null}', "''": "{}", "null": None}),
    Case("ltree", "ltree", "string", {"'top.science'": "top.science"}),
    Case("tsvector", "tsvector", "string", {"'b:2 a:1A'": "'a':1A 'b':2"}),
    Case("tsquery", "tsquery", "string", {"'a & !b'": "'a' & !'b'"}),
    Case("point, line, lseg, box, path, polygon, circle", "point", "string", {"'(1,0.1)'": "(1,0.1)"}),
    Case("point, line, lseg, box, path, polygon, circle", "circle", "string", {"'<(1,2),3>'": "<(1,2),3>"}),
    Case("point, line, lseg, box, path, polygon, circle", "polygon", "string", {"'((0,0),(1,1))'": "((0,0),(1,1))"}),
    Case("oid", "oid", "long", {"4294967295": 4294967295}),
    Case("xid, xid8, cid, tid", "xid", "string", {"'4294967295'": "4294967295"}),
    Case("xid, xid8, cid, tid", "xid8", "string", {"'18446744073709551615'": "18446744073709551615"}),
    Case("xid, xid8, cid, tid", "tid", "string", {"'(1,2)'": "(1,2)"}),
    Case("pg_lsn", "pg_lsn", "string", {"'16/B374D848'": "16/B374D848"}),
    Case("regclass, regtype …", "regclass", "string", {"'pg_class'": "pg_class"}),
    Case("regclass, regtype …", "regtype", "string", {"'int4'": "integer"}),
    Case("jsonpath", "jsonpath", "string", {"'$.a'": '$."a"'}),
    Case("int2vector, oidvector", "int2vector", "string", {"'1 2 3'": "1 2 3"}),
    Case("any other type", "txid_snapshot", "string", {"'1:3:2'": "1:3:2"}),
    Case("any other type", "pg_snapshot", "string", {"'1:3:2'": "1:3:2"}),
]

MADE = (
    "CREATE TYPE mood AS ENUM ('it''s ok', 'süß')",
    "CREATE DOMAIN posint AS int CHECK (value > 0)",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN price_of_prices AS price",
    "CREATE DOMAIN ints AS int[]",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE span AS RANGE (subtype = numeric)",
)


def test_each_line_of_the_table_has_a_case_and_each_case_a_line() -> None:
    assert {case.line for case in CASES} == {row.postgres for row in FIDELITY}


def test_the_page_shows_the_table() -> None:
    assert fidelity_table() in PAGE.read_text()


def test_every_type_is_read_as_the_table_says(source: Source) -> None:
    statements = list(MADE)
    for number, case in enumerate(CASES):
        # One INSERT a value: in a VALUES list together they would have to agree about a type first.
        inserts = [f"INSERT INTO t{number} VALUES ({at}, {value})" for at, value in enumerate(case.values)]
        statements += [f"CREATE TABLE t{number} (at int, v {case.declared})", *inserts]
    source.run(*statements)
    read = source.read_all(["*"])
    wrong = []
    for number, case in enumerate(CASES):
        column = read[f"t{number}"].sort_by("at").column("v")
        found, expected = column.to_pylist(), list(case.values.values())
        if column.type != parse_type(case.becomes).arrow or not _same(found, expected):
            wrong.append((case.declared, column.type, found[:5], expected[:5]))
    assert wrong == []


def _same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        one == other or (isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other))
        for one, other in zip(found, expected, strict=True)
    )


def test_years_beyond_the_calendar_of_python_are_kept(source: Source) -> None:
    source.run("CREATE TABLE t (d date, ts timestamp)", "INSERT INTO t VALUES ('4713-01-01 BC', '4713-01-01 BC')")
    source.run("INSERT INTO t VALUES ('5874897-12-31', '294246-12-31 23:59:59.999999')")
    read = source.read("t")
    assert read.column("d").cast(pa.int32()).to_pylist() == [-2_440_550, 2_145_042_905]
    told = source.run("SELECT (extract(epoch FROM ts) * 1000000)::numeric(20,0) FROM t").split()
    assert [str(one) for one in read.column("ts").cast(pa.int64()).to_pylist()] == told


INFINITE = (
    "CREATE TABLE t (id int, d date, ts timestamp, tz timestamptz, ds date[])",
    "INSERT INTO t VALUES (1, 'infinity', 'infinity', 'infinity', '{infinity,2024-01-01}')",
    "INSERT INTO t VALUES (2, '-infinity', '-infinity', '-infinity', '{-infinity}')",
    "INSERT INTO t VALUES (3, '2024-01-01', '294276-12-31 23:59:59.999999', '294276-12-31', null)",
    "INSERT INTO t VALUES (4, null, null, null, '{null}')",
)


def test_infinity_fails_with_the_column_and_the_number_of_rows(source: Source) -> None:
    source.run(*INFINITE)
    with pytest.raises(InvalidInput, match=r"'d' \(date\).* in 2 of the 4 rows") as caught:
        source.read("t")
    assert caught.value.code == "postgres_value_unfit" and 'infinity = "null"' in caught.value.hint


def test_infinity_as_null(source: Source) -> None:
    source.run(*INFINITE)
    read = source.read("t", LossPolicy(infinity="null")).sort_by("id").to_pydict()
    assert read["d"] == [None, None, date(2024, 1, 1), None]
    assert read["ts"] == read["tz"] == [None] * 4
    assert read["ds"] == [[None, date(2024, 1, 1)], [None], None, [None]]


def test_infinity_clamped(source: Source) -> None:
    source.run(*INFINITE)
    read = source.read("t", LossPolicy(infinity="clamp")).sort_by("id").to_pydict()
    first, last = at(1, 1, 1), at(9999, 12, 31, 23, 59, 59, 999999)
    assert read["d"] == [date(9999, 12, 31), date(1, 1, 1), date(2024, 1, 1), None]
    assert read["ts"] == read["tz"] == [last, first, last, None]
    assert read["ds"] == [[date(9999, 12, 31), date(2024, 1, 1)], [date(1, 1, 1)], None, [None]]


def test_nan_in_a_decimal(source: Source) -> None:
    source.run("CREATE TABLE t (id int, n numeric(10,2), ns numeric(10,2)[])")
    source.run("INSERT INTO t VALUES (1, 'NaN', '{NaN,1}'), (2, 1.5, null)")
    with pytest.raises(InvalidInput, match=r"'n' \(numeric\(10,2\)\).* holds NaN in 1 of the 2 rows"):
        source.read("t")
    read = source.read("t", LossPolicy(nan="null")).sort_by("id").to_pydict()
    assert read["n"] == [None, Decimal("1.50")] and read["ns"] == [[None, Decimal("1.00")], None]


def test_an_array_with_more_dimensions_than_declared(source: Source) -> None:
    source.run("CREATE TABLE t (id int, v int[])", "INSERT INTO t VALUES (1, '{{1,2},{3,4}}'), (2, '{5}'), (3, null)")
    with pytest.raises(InvalidInput, match=r"'v' \(integer\[\]\).* several dimensions in 1 of the 3 rows"):
        source.read("t")
    assert source.read("t", LossPolicy(nested_arrays="null")).sort_by("id").to_pydict()["v"] == [None, [5], None]


def test_a_type_of_the_same_name_elsewhere_is_another_type(source: Source) -> None:
    source.run("CREATE TYPE hstore AS ENUM ('x')", 'CREATE TYPE "date" AS (a int)')
    source.run(
        f"CREATE TABLE t (a {source.schema}.hstore, b {source.schema}.date)", "INSERT INTO t VALUES ('x', ROW(1))"
    )
    assert source.read("t").to_pylist() == [{"a": "x", "b": '{"a":1}'}]


def test_generated_dropped_and_no_columns(source: Source) -> None:
    source.run("CREATE TABLE t (a int, gone text, twice int GENERATED ALWAYS AS (a * 2) STORED)")
    source.run("INSERT INTO t (a, gone) VALUES (21, 'x')", "ALTER TABLE t DROP COLUMN gone")
    assert source.read("t").to_pylist() == [{"a": 21, "twice": 42}]
    assert [column.generated for column in source.describe("t").columns] == [False, True]
    source.run("CREATE TABLE bare ()", *["INSERT INTO bare DEFAULT VALUES"] * 3)
    with exported(source.dsn, select(source.dsn, source.schema, ["bare"])) as snapshot:
        bare = snapshot.tables[0]
        batches = read_range(source.dsn, snapshot.snapshot_id, plan_table(bare, str), ranges_of(bare)[0], max_rows=2)
        assert bare.columns == () and [batch.num_rows for batch in batches] == [2, 1]


def test_text_of_a_database_without_an_encoding(server: PostgresServer) -> None:
    psql(server, "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    psql(server, "CREATE TABLE t (n int, s text)", "INSERT INTO t VALUES (1, 'ok ü')", database="ascii")
    source = Source(server, "public", dsn_of(server, dbname="ascii"))
    assert source.read("t").to_pylist() == [{"n": 1, "s": "ok ü"}]
    psql(server, "INSERT INTO t VALUES (2, E'\\xff')", database="ascii")
    with pytest.raises(InvalidInput, match=r'public\.t.* invalid byte sequence for encoding "UTF8": 0xff'):
        source.read("t")
