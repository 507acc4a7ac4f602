"""Reading on from the last value: nothing left out that the overlap covers, nothing remembered that was not read."""

from __future__ import annotations

import pytest

from frazil.errors import InvalidInput
from frazil.pipeline.sources.postgres.cursor import CursorRead, CursorState, Nulls, cursor_start, plan_cursor
from frazil.pipeline.sources.postgres.exported_snapshot import exported
from frazil.pipeline.sources.postgres.read import plan_table
from frazil.pipeline.sources.postgres.source_tables import select
from tests.pipeline.sources.postgres.conftest import Source, read_table


def read_on(
    source: Source, state: CursorState | str, *, overlap: float = 0, nulls: Nulls = "skip"
) -> tuple[list[int], CursorRead]:
    """The ids read from table `t`, and the plan that read them. A text is the column to begin with."""
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        last = cursor_start(table, state) if isinstance(state, str) else state
        step = plan_cursor(snapshot, table, last, overlap=overlap, nulls=nulls)
        read = read_table(snapshot, table, plan_table(table, str, where=step.where))
        snapshot.check()
    return sorted(read.column("id").to_pylist()), step


@pytest.mark.parametrize(
    ("declared", "first", "second", "overlap"),
    [
        ("smallint", "-32768", "-32767", 1),
        ("int", "1", "2", 1),
        ("bigint", "-9223372036854775808", "-9223372036854775807", 2),
        ("date", "'0044-03-15 BC'", "'2024-01-02'", 1_000_000),
        ("timestamp", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:00.000002'", 1),
        ("timestamptz", "'2024-01-01 00:00:00+02'", "'12024-01-01 00:00:00.5+00'", 1e9),
    ],
)
def test_a_load_takes_up_where_the_last_one_ended(
    source: Source, declared: str, first: str, second: str, overlap: float
) -> None:
    source.run(f'CREATE TABLE t (id int, "At" {declared})')
    empty, step = read_on(source, "At")
    assert empty == [] and step.next.value is None
    source.run(f"INSERT INTO t VALUES (1, {first})")
    ids, step = read_on(source, step.next)
    assert ids == [1] and step.next.value is not None
    kept = CursorState.from_json(step.next.to_json())
    assert kept == step.next
    ids, step = read_on(source, kept)
    assert ids == [] and step.next == kept
    source.run(f"INSERT INTO t VALUES (2, {second})")
    ids, after = read_on(source, kept)
    assert ids == [2] and after.next != kept
    ids, again = read_on(source, after.next, overlap=overlap)
    assert again.next == after.next and 2 in ids


def test_an_overlap_reads_what_was_committed_late(source: Source) -> None:
    source.run("CREATE TABLE t (id int, at timestamptz)", "INSERT INTO t VALUES (1, '2024-01-01 12:00:00+00')")
    _, step = read_on(source, "at")
    source.run("INSERT INTO t VALUES (2, '2024-01-01 11:59:30+00'), (3, '2024-01-01 11:58:00+00')")
    assert read_on(source, step.next)[0] == []
    assert read_on(source, step.next, overlap=60)[0] == [1, 2]
    assert read_on(source, step.next, overlap=120)[0] == [1, 2]
    assert read_on(source, step.next, overlap=120.000001)[0] == [1, 2, 3]


def test_the_cursor_is_that_of_the_snapshot(source: Source) -> None:
    source.run("CREATE TABLE t (id int, n int)", "INSERT INTO t VALUES (1, 1)")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        source.run("INSERT INTO t VALUES (2, 2)")
        table = snapshot.tables[0]
        step = plan_cursor(snapshot, table, cursor_start(table, "n"))
        read = read_table(snapshot, table, plan_table(table, str, where=step.where))
    assert read.column("id").to_pylist() == [1] and step.next.value == "1"
    assert read_on(source, step.next)[0] == [2]


def test_rows_without_a_value_are_counted_and_read_on_request(source: Source) -> None:
    source.run("CREATE TABLE t (id int, n int)", "INSERT INTO t VALUES (1, 1), (2, null), (3, null)")
    ids, step = read_on(source, "n")
    assert ids == [1] and step.null_rows == 2
    assert read_on(source, step.next, nulls="include")[0] == [2, 3]


def test_an_infinite_value_does_not_end_the_reading(source: Source) -> None:
    source.run("CREATE TABLE t (id int, at date)", "INSERT INTO t VALUES (1, '2024-01-01')")
    source.run("ALTER TABLE t ADD COLUMN x int", "INSERT INTO t VALUES (2, '-infinity')")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        assert plan_cursor(snapshot, table, cursor_start(table, "at")).next.value == "2024-01-01"
    source.run("INSERT INTO t VALUES (3, 'infinity')")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        assert plan_cursor(snapshot, table, cursor_start(table, "at")).next.value == "2024-01-01"


def test_the_cursor_does_not_go_back(source: Source) -> None:
    source.run("CREATE TABLE t (id int, n bigint, at timestamp)")
    source.run("INSERT INTO t VALUES (1, 9, '9999-01-01'), (2, 10, '10000-01-01')")
    by_number, by_time = read_on(source, "n")[1].next, read_on(source, "at")[1].next
    source.run("DELETE FROM t WHERE id = 2")
    assert read_on(source, by_number)[1].next.value == "10"
    assert read_on(source, by_time)[1].next.value == "10000-01-01 00:00:00"
    source.run("DELETE FROM t")
    assert read_on(source, by_number)[1].next == by_number


def test_an_index_finds_the_rows(source: Source) -> None:
    source.run("CREATE TABLE t (id int, n bigint)", "CREATE INDEX ON t (n)")
    source.run("INSERT INTO t SELECT n, n FROM generate_series(1, 50000) n", "ANALYZE t")
    _, step = read_on(source, "n")
    _, step = read_on(source, step.next, overlap=10)
    assert "Index" in source.run(f"EXPLAIN SELECT id FROM t WHERE {step.where}")


def test_what_cannot_be_a_cursor(source: Source) -> None:
    source.run("CREATE TABLE t (id int, s text, f float8, ns int[], n int)")
    table = source.describe("t")
    for column in ("s", "f", "ns", "nope"):
        with pytest.raises(InvalidInput) as caught:
            cursor_start(table, column)
        assert caught.value.code == "bad_cursor_column"
    state = cursor_start(table, "n")
    source.run("ALTER TABLE t ALTER COLUMN n TYPE bigint")
    with pytest.raises(InvalidInput, match="was int4 and is int8 now"):
        read_on(source, state)
    with pytest.raises(InvalidInput, match="negative"):
        read_on(source, CursorState("id", "int4", "1"), overlap=-1)


@pytest.mark.parametrize(
    "text",
    [
        '{"column": "n", "type": "int4", "value": "1; DROP TABLE t"}',
        '{"column": "n", "type": "text", "value": "x"}',
        "[]",
        "nope",
    ],
)
def test_a_state_that_was_not_written_by_us_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CursorState.from_json(text)
    assert caught.value.code == "bad_cursor"
