"""The engine's own wall, without the help of the operating system; and what a relation shows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from frazil.errors import FrazilError, InvalidInput
from frazil.serving.sql import Relation
from frazil.serving.sql.errors import ConversionFailed
from frazil.serving.sql.worker.duckdb_engine import Engine, Store
from frazil.serving.sql.worker.views import RelationView, decode_relation, encode_relation
from tests.serving.sql.tables import ROWS, House, relation, rows, tail_of


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("house") / "warehouse")


@pytest.fixture(scope="module")
def engine(house: House) -> Iterator[Engine]:
    made = Engine(Store([f"{house.folder}/", f"file://{house.folder}/"]))
    made.lock(threads=2, memory_bytes=400 << 20)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def secrets_table(house: House) -> Any:
    """Blue rows whose secret is a number, and red ones whose secret no cast survives."""
    return house.table("secrets", [rows(0, 3000), rows(3000, 3010, team="red", secret="s3cr3t"), rows(3010, 6000)])


def wire(one: Relation) -> RelationView:
    return decode_relation(json.loads(json.dumps(encode_relation(one, lambda domain: f"salt of {domain}"))))


def run(engine: Engine, sql: str, *relations: Relation, parameters: Any = None, max_rows: int = 100) -> list[Any]:
    encoded = engine.run(
        sql,
        parameters,
        [wire(one) for one in relations],
        format="json",
        max_rows=max_rows,
        max_bytes=1 << 20,
    )
    return list(json.loads(encoded.body))


@pytest.mark.parametrize(
    "hostile",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '/tmp/frazil-should-not-exist.csv'",
        "ATTACH '/tmp/frazil-should-not-exist.db'",
        "SELECT * FROM read_text('http://127.0.0.1:1/x')",
        "INSTALL spatial",
        "LOAD spatial",
        "SET memory_limit = '100GB'",
        "SET threads = 64",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET allowed_directories",
        "CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    ],
)
def test_the_engine_by_itself_keeps_its_doors_shut(engine: Engine, hostile: str) -> None:
    with pytest.raises(duckdb.Error):
        engine.connection.execute(hostile).fetchall()
    assert not list(Path("/tmp").glob("frazil-should-not-exist*"))


def test_variables_of_the_worker_cannot_be_read_as_tables(engine: Engine) -> None:
    leaked = pa.table({"a": [1]})
    with pytest.raises(duckdb.CatalogException):
        engine.connection.execute("SELECT * FROM leaked").fetchall()
    assert leaked.num_rows == 1


def test_a_relation_shows_snapshot_and_tail_once(engine: Engine, house: House) -> None:
    table = house.table("plain", [rows(0, 100), rows(100, 200)])
    whole = rows(150, 260)
    engine.take_tail("plain", fresh=True, keep_from=None, rows=whole)
    live = relation(table, tail=tail_of("plain", whole, 200, 250))

    assert run(engine, "SELECT count(*), min(_seq), max(_seq), count(DISTINCT _id) FROM t", live) == [
        [250, 0, 249, 250]
    ]
    assert run(engine, "SELECT count(*) FROM t", relation(table)) == [[200]]
    assert run(engine, "SELECT n FROM main.t WHERE _id = $1", live, parameters=["e249"]) == [[249]]
    assert run(engine, "SELECT n FROM t WHERE _id = $id", live, parameters={"id": "e7"}) == [[7]]


def test_an_older_snapshot_is_read_by_its_id(engine: Engine, house: House) -> None:
    table = house.table("older", [rows(0, 10), rows(10, 30)])
    first = table.history()[0].snapshot_id
    then = Relation("main", "t", ROWS, table.metadata_location, first)
    assert run(engine, "SELECT count(*) FROM t", then) == [[10]]


def test_a_table_without_a_snapshot_is_empty_and_shows_its_tail(engine: Engine) -> None:
    nothing = Relation("main", "t", ROWS, None, None)
    assert run(engine, "SELECT count(*) FROM t", nothing) == [[0]]
    assert run(engine, "SELECT * FROM t", nothing) == []

    engine.take_tail("new", fresh=True, keep_from=None, rows=rows(0, 5))
    live = Relation("main", "t", ROWS, None, None, tail=tail_of("new", rows(0, 5), 0, 4))
    assert run(engine, "SELECT count(*), sum(n) FROM t", live) == [[4, 6]]


def test_a_schema_that_has_grown(engine: Engine, house: House) -> None:
    """A column added and one widened since the snapshot: the tail has them, the files do not."""
    table = house.table("grown", [rows(0, 10)])
    with table.update_schema() as change:
        change.update_column("n", LongType())
        structure = StructType(
            NestedField(0, "a b", StringType()), NestedField(0, "l", ListType(0, IntegerType(), element_required=False))
        )
        change.add_column("extra", structure)
    grown = pa.schema([*(ROWS.field(name) for name in ("_seq", "_id", "team", "secret")), pa.field("n", pa.int64())])
    grown = grown.append(
        pa.field("extra", pa.struct([pa.field("a b", pa.string()), pa.field("l", pa.list_(pa.int32()))]))
    )
    tail = pa.table(
        {
            "_seq": [10],
            "_id": ["e10"],
            "team": ["blue"],
            "secret": ["1"],
            "n": [2**40],
            "extra": [{"a b": "x", "l": [1, 2]}],
        },
        schema=grown,
    )
    engine.take_tail("grown", fresh=True, keep_from=None, rows=tail)
    live = replace(relation(table, columns=grown, tail=tail_of("grown", tail, 10, 11)), snapshot_id=None)

    assert run(engine, "SELECT max(n), typeof(any_value(n)), count(extra) FROM t", live) == [[2**40, "BIGINT", 1]]
    assert run(engine, "SELECT extra FROM t WHERE _seq IN (9, 10) ORDER BY _seq", live) == [
        [None],
        [{"a b": "x", "l": [1, 2]}],
    ]
    committed = replace(relation(table, columns=grown), snapshot_id=None)
    assert run(engine, "SELECT count(*) FROM t WHERE extra IS NULL", committed) == [[10]]


def test_nothing_of_a_query_stays_for_the_next(engine: Engine, secrets_table: Any) -> None:
    run(engine, "SELECT count(*) FROM t", relation(secrets_table))
    with pytest.raises(FrazilError) as gone:
        run(engine, "SELECT count(*) FROM t")
    assert gone.value.code == "table_not_found"
    # Even what only an engine without the wall of statements would run.
    for hostile in ("CREATE TABLE mine AS SELECT 1 AS a", "CREATE TEMP TABLE mine AS SELECT 1 AS a"):
        with contextlib.suppress(FrazilError):
            run(engine, hostile)
        with pytest.raises(FrazilError):
            run(engine, "SELECT * FROM mine")


def test_the_next_query_sees_its_own_relations_and_no_others(engine: Engine, secrets_table: Any) -> None:
    whole, blue, red = (relation(secrets_table, where=w) for w in (None, "team = 'blue'", "team = 'red'"))
    teams = "SELECT DISTINCT team FROM t ORDER BY 1"
    everything = run(engine, teams, whole)
    assert ["blue"] in everything and ["red"] in everything
    for seen, expected in ((blue, [["blue"]]), (blue, [["blue"]]), (red, [["red"]]), (whole, everything)):
        assert run(engine, teams, seen) == expected
    masked = relation(secrets_table, masks={"team": "null"})
    assert run(engine, teams, masked) == [[None]]
    other = Relation("other", "u", whole.columns, whole.metadata, whole.snapshot_id)
    assert run(engine, "SELECT count(*) FROM other.u", other) == run(engine, "SELECT count(*) FROM t", whole)
    for absent in ("SELECT count(*) FROM other.u", "SELECT count(*) FROM u"):
        with pytest.raises(FrazilError) as gone:
            run(engine, absent, whole)
        assert gone.value.code in ("table_not_found", "bad_sql")


def test_names_that_need_quotes_and_other_schemas(engine: Engine, secrets_table: Any) -> None:
    odd = Relation('odd "schema"', 'a "table"; DROP', ROWS, secrets_table.metadata_location, None)
    assert run(engine, 'SELECT count(*) FROM "odd ""schema"""."a ""table""; DROP"', odd) == [[6000]]


def test_lines_of_files_are_a_table(engine: Engine, house: House) -> None:
    folder = house.folder / "audit"
    folder.mkdir()
    columns = pa.schema(
        [pa.field("time", pa.timestamp("us", "UTC")), pa.field("who", pa.string()), pa.field("ms", pa.float64())]
    )
    view = Relation("@system", "audit", columns, None, None, lines=str(folder / "*.jsonl"))
    assert run(engine, 'SELECT count(*) FROM "@system".audit', view) == [[0]]

    (folder / "a.jsonl").write_text('{"time": "2026-01-01T00:00:00Z", "who": "o\'neil", "ms": 1.5, "more": 1}\n')
    (folder / "b.jsonl").write_text('{"time": "2026-01-02T00:00:00Z", "who": "b"}\n{"time": "2026-01-0')
    assert run(engine, 'SELECT time, who, ms FROM "@system".audit WHERE who IS NOT NULL ORDER BY time', view) == [
        ["2026-01-01T00:00:00Z", "o'neil", 1.5],
        ["2026-01-02T00:00:00Z", "b", None],
    ]


# Each fails on a red row, whose secret is "s3cr3t", and on no blue one.
PROBES = [
    "SELECT count(*) FROM t WHERE CAST(secret AS INT) = 12",
    "SELECT sum(CAST(secret AS INT)) FROM t",
    "SELECT CAST(secret AS INT) FROM t ORDER BY 1 LIMIT 1",
    "SELECT count(*) FROM t WHERE team = 'red' AND CAST(secret AS INT) > 0",
    "SELECT count(*) FROM t WHERE CASE WHEN team = 'red' THEN error('red') ELSE true END",
    "SELECT count(*) FROM t WHERE CASE WHEN team = 'red' THEN CAST('x' || n AS INT) ELSE 1 END = 1",
    "SELECT count(*) FROM t WHERE CAST(length(secret) * 30 AS TINYINT) % 7 > 0",
    "SELECT count(*) FROM t a JOIN t b ON CAST(a.secret AS INT) = b.n",
    "SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u._seq = t._seq AND CAST(u.secret AS INT) = 0)",
    "SELECT max(CAST(secret AS INT)) OVER () FROM t LIMIT 1",
    "SELECT team, count(*) FROM t GROUP BY team HAVING min(CAST(secret AS INT)) > 0",
    "SELECT count(*) FROM t WHERE strptime(secret, '%d') IS NOT NULL",
    "SELECT count(*) FROM t WHERE decode(from_hex(secret)) = 'x'",
    "SELECT DISTINCT CAST(secret AS INT) FROM t",
    "WITH c AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM c WHERE CAST(secret AS INT) = 1",
    "SELECT count(*) FROM (SELECT * FROM t UNION ALL SELECT * FROM t) WHERE CAST(secret AS INT) = 1",
    "SELECT count(*) FILTER (WHERE CAST(secret AS INT) = 1) FROM t",
    "SELECT (SELECT CAST(u.secret AS INT) FROM t u WHERE u._seq = t._seq) FROM t LIMIT 3",
]


@pytest.mark.parametrize("probe", PROBES)
def test_no_expression_is_evaluated_on_a_hidden_row(engine: Engine, secrets_table: Any, probe: str) -> None:
    whole = rows(6000, 6010, team="red", secret="s3cr3t")
    engine.take_tail("probe", fresh=True, keep_from=None, rows=whole)
    tail = tail_of("probe", whole, 6000, 6010)

    # The probe works: without the filter it trips over a red row.
    with pytest.raises(FrazilError):
        run(engine, probe, relation(secrets_table, tail=tail))
    run(engine, probe, relation(secrets_table, tail=tail, where="team = 'blue' -- and no other"))


def test_the_plan_keeps_the_callers_predicate_above_the_barrier(engine: Engine, secrets_table: Any) -> None:
    guarded = wire(relation(secrets_table, where="team = 'blue'"))
    engine._show([guarded])
    ((_, plan),) = engine.connection.execute("EXPLAIN SELECT n FROM t WHERE CAST(secret AS INT) = 3").fetchall()
    predicate, barrier = plan.index("CAST(secret AS INTEGER)"), plan.index("STREAMING_LIMIT")
    assert predicate < barrier < plan.index("ICEBERG_SCAN")


def test_errors_tell_no_value_when_something_is_hidden(engine: Engine, secrets_table: Any) -> None:
    open_text = _message(engine, "SELECT CAST(secret AS INT) FROM t", relation(secrets_table))
    assert "s3cr3t" in open_text
    for hidden in (
        relation(secrets_table, where="team = 'red'"),
        relation(secrets_table, masks={"n": "null"}),
        # The filter itself fails, on a row that the caller may not see.
        relation(secrets_table, where="CAST(secret AS INT) > 0"),
    ):
        told = _message(engine, "SELECT CAST(secret AS INT) FROM t", hidden)
        assert "s3cr3t" not in told and "withheld" not in told
        assert "not shown" in told


def _message(engine: Engine, sql: str, *relations: Relation) -> str:
    with pytest.raises(ConversionFailed) as failed:
        run(engine, sql, *relations)
    return failed.value.message + failed.value.hint


def test_masks(engine: Engine, secrets_table: Any) -> None:
    masked = relation(
        secrets_table,
        masks={"secret": "hash", "team": "redact", "n": "null", "_seq": "redact"},
        hash_domains={"secret": "a"},
    )
    found = run(engine, "SELECT _seq, _id, team, secret, n, typeof(n), typeof(_seq) FROM t WHERE _id = 'e5'", masked)
    ((seq, id_, team, secret, n, n_type, seq_type),) = found
    assert (seq, id_, team, n, n_type, seq_type) == (None, "e5", "***", None, "INTEGER", "BIGINT")
    assert len(secret) == 64 and secret != "12"
    # Equal values stay equal, which is what a hash is asked for; others differ.
    assert run(engine, "SELECT count(DISTINCT secret) FROM t", masked) == [[2]]
    assert run(engine, "SELECT count(*) FROM t WHERE team = 'blue' OR secret = '12' OR n = 5", masked) == [[0]]
    # In another domain it is another hash, in the same one the same.
    for domain, alike in (("a", 6000), ("b", 0)):
        other = replace(masked, name="u", hash_domains={"secret": domain})
        joined = "SELECT count(DISTINCT t._id) FROM t JOIN u ON t.secret = u.secret AND t._id = u._id"
        assert run(engine, joined, masked, other) == [[alike]]


def test_a_masked_column_still_filters(engine: Engine, secrets_table: Any) -> None:
    filtered = relation(secrets_table, where="team = 'red'", masks={"team": "null"})
    assert run(engine, "SELECT count(*), count(team) FROM t", filtered) == [[10, 0]]


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("team = 'blue'", True),
        ("n > 3 AND team IN ('a', 'b')", True),
        ("n", False),
        ("missing = 1", False),
        ("true) OR (true", False),
        ("n IN (SELECT 1)", False),
        ("count(*) > 1", False),
        ("team = 'a'; DROP TABLE t", False),
        ("read_text('/etc/passwd') IS NULL", False),
        ("", False),
    ],
)
def test_filters_are_checked(engine: Engine, expression: str, good: bool) -> None:
    columns: Sequence[tuple[str, str]] = [("team", "VARCHAR"), ("n", "INTEGER")]
    if good:
        engine.check_filter(expression, columns)
    else:
        with pytest.raises(InvalidInput):
            engine.check_filter(expression, columns)


def test_tails_grow_shrink_and_go(engine: Engine) -> None:
    live = Relation("main", "t", ROWS, None, None, tail=tail_of("k", rows(0, 0), 0, 1000))
    count = "SELECT count(*), min(_seq), max(_seq) FROM t"
    engine.take_tail("k", fresh=True, keep_from=None, rows=rows(0, 10))
    engine.take_tail("k", fresh=False, keep_from=None, rows=rows(10, 12))
    assert run(engine, count, live) == [[12, 0, 11]]
    engine.take_tail("k", fresh=False, keep_from=8, rows=rows(12, 14))
    assert run(engine, count, live) == [[6, 8, 13]]
    engine.take_tail("k", fresh=True, keep_from=None, rows=rows(50, 51))
    assert run(engine, count, live) == [[1, 50, 50]]
    engine.forget_tail("k")
    engine.take_tail("k", fresh=True, keep_from=None, rows=rows(0, 2))
    assert run(engine, count, live) == [[2, 0, 1]]


def test_errors_name_no_path_and_nothing_inside(engine: Engine, secrets_table: Any, house: House) -> None:
    broken = Relation("main", "t", ROWS, f"file://{house.folder}/nowhere/metadata.json", None)
    outside = Relation("main", "t", ROWS, "file:///etc/passwd", None)
    fine = relation(secrets_table)
    for sql, shown_one, code in (
        ("SELECT * FROM t", broken, "files_unreadable"),
        ("SELECT * FROM t", outside, "files_unreadable"),
        ("SELECT nope FROM t", fine, "bad_sql"),
        ("SELECT lower(n, n) FROM t", fine, "bad_sql"),
        ("SELECT * FROM t WHERE", fine, "bad_sql"),
        ("SELECT * FROM tt", fine, "table_not_found"),
        ("SELECT * FROM duckdb_tabls", fine, "table_not_found"),
    ):
        with pytest.raises(FrazilError) as failed:
            run(engine, sql, shown_one)
        said = failed.value.message + failed.value.hint
        assert failed.value.code == code, said
        assert str(house.folder) not in said and "/etc" not in said and "Did you mean" not in said
        assert engine._names.schema not in said and engine._names.parameter not in said


def test_types_arrive_exactly(engine: Engine) -> None:
    sql = (
        "SELECT 170141183460469231731687303715884105727::HUGEINT AS h, 0.1::DECIMAL(38,37) AS d, "
        '\'12:00:00+02\'::TIMETZ AS z, INTERVAL 3 MONTH AS i, \'a b\'::VARCHAR AS "odd ""name"""'
    )
    assert run(engine, sql) == [
        [170141183460469231731687303715884105727, "0.1" + "0" * 36, "12:00:00+02", "3 months", "a b"]
    ]
    encoded = engine.run(sql, None, [], format="csv", max_rows=1, max_bytes=10_000)
    assert encoded.columns[0] == {"name": "h", "type": "HUGEINT"}
    assert encoded.columns[-1]["name"] == 'odd "name"'
