"""Ranges are complete and disjoint, while the table is changed under them."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.sources.postgres.exported_snapshot import exported
from frazil.pipeline.sources.postgres.read import TablePlan, plan_table, read_range
from frazil.pipeline.sources.postgres.source_tables import SourceRelation, SourceTable, TablePartition, select
from frazil.pipeline.sources.postgres.table_ranges import Range, ranges_of
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy
from tests.pipeline.sources.postgres.conftest import Source


@given(
    blocks=st.integers(0, 5000),
    size=st.integers(0, 1 << 30),
    target=st.integers(1 << 12, 1 << 28),
    readers=st.integers(1, 20),
)
def test_ranges_follow_each_other_from_the_first_page_to_beyond_the_last(
    blocks: int, size: int, target: int, readers: int
) -> None:
    relation = SourceRelation("s", "t", "r")
    table = SourceTable(relation, (), (), (TablePartition(relation, blocks, size),), None)
    found = ranges_of(table, target, side_by_side=readers)
    assert (found[0].first_block or 0) == 0 and found[-1].end_block is None
    for one, following in itertools.pairwise(found):
        assert one.end_block == following.first_block and (one.first_block or 0) < (one.end_block or 0)
    assert len(found) < max(1, round(size / target)) + readers
    assert len(ranges_of(table, target)) <= max(1, round(size / target))


@pytest.mark.parametrize(
    ("megabytes", "readers", "ranges"), [(10, 8, 1), (100, 4, 4), (100, 16, 6), (400, 2, 2), (700, 2, 4), (1100, 4, 4)]
)
def test_every_reader_has_a_range_that_is_worth_its_connection(megabytes: int, readers: int, ranges: int) -> None:
    relation = SourceRelation("s", "t", "r")
    part = TablePartition(relation, megabytes << 7, megabytes << 20)
    assert len(ranges_of(SourceTable(relation, (), (), (part,), None), 256 << 20, side_by_side=readers)) == ranges


def test_a_range_says_its_pages() -> None:
    relation = SourceRelation("s", "t", "r")
    assert Range(relation, 0, 5).condition == "ctid < '(5,0)'::tid"
    assert Range(relation, 5, None).condition == "ctid >= '(5,0)'::tid"
    assert str(Range(relation, 5, 9)) == "s.t pages 5–9"


def test_a_further_condition_holds_beside_that_of_the_range() -> None:
    relation = SourceRelation("s", "t", "r")
    plan = TablePlan(relation, (), LossPolicy(), where="a > 1 OR a IS NULL")
    statement = plan.statement(Range(relation, 0, 5))
    assert statement.endswith("""FROM ONLY "s"."t" WHERE (ctid < '(5,0)'::tid) AND (a > 1 OR a IS NULL)""")


def test_every_row_once_while_others_update_delete_and_vacuum(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, pad text) WITH (fillfactor = 70)",
        "INSERT INTO t SELECT n, 0, repeat('x', 200) FROM generate_series(1, 20000) n",
        "DELETE FROM t WHERE id % 7 = 0",
        "UPDATE t SET v = 1 WHERE id % 5 = 0",
    )
    expected = source.run("SELECT id || ':' || v FROM t").split()
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        plan = plan_table(table, str)
        found = list(ranges_of(table, 256 << 10))
        assert len(found) > 10
        random.Random(5).shuffle(found)
        stop = threading.Event()
        rounds = 0

        def churn() -> None:
            nonlocal rounds
            while not stop.is_set():
                source.run(
                    f"UPDATE t SET v = v + 100, pad = repeat('y', {50 + rounds % 200}) WHERE id % 3 = {rounds % 3}",
                    f"DELETE FROM t WHERE id % 11 = {rounds % 11}",
                    f"INSERT INTO t SELECT n, 9, 'new' FROM generate_series({100_000 + rounds * 1000}, "
                    f"{100_000 + rounds * 1000 + 999}) n",
                    "VACUUM t",
                )
                rounds += 1

        churning = threading.Thread(target=churn)
        churning.start()
        try:
            read = []
            for at, within in enumerate(found):
                while rounds < min(at, 6) and churning.is_alive():
                    stop.wait(0.02)  # let it change between the ranges, not only before or after them
                for batch in read_range(source.dsn, snapshot.snapshot_id, plan, within):
                    read += [f"{row['id']}:{row['v']}" for row in batch.to_pylist()]
            snapshot.check()
        finally:
            stop.set()
            churning.join(120)
        assert not churning.is_alive() and rounds >= 6
    assert sorted(read) == sorted(expected)


def test_a_range_is_found_by_its_place_and_not_by_reading_the_table(source: Source) -> None:
    source.run("CREATE TABLE t AS SELECT n FROM generate_series(1, 50000) n", "ANALYZE t")
    table = source.describe("t")
    statement = plan_table(table, str).statement(ranges_of(table, 200_000)[2])
    assert "Tid Range Scan" in source.run(f"EXPLAIN {statement}")


def test_what_is_stored_beside_the_pages_counts(source: Source) -> None:
    source.run("CREATE TABLE t (n int, doc text)", "ALTER TABLE t ALTER COLUMN doc SET STORAGE EXTERNAL")
    source.run("INSERT INTO t SELECT n, repeat('x', 20000) FROM generate_series(1, 1000) n")
    table = source.describe("t")
    assert len(ranges_of(table, 4 << 20)) >= 4
    read = source.read("t", range_bytes=4 << 20)
    assert sorted(read.column("n").to_pylist()) == list(range(1, 1001))


READS = """
import pickle, resource, sys
from frazil.pipeline.sources.postgres.read import read_range
task = pickle.load(sys.stdin.buffer)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for batch in read_range(*task, batch_bytes=1 << 20))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_range(source: Source) -> None:
    source.run("CREATE TABLE t AS SELECT n, repeat('x', 1000) AS s FROM generate_series(1, 200000) n")
    with exported(source.dsn, select(source.dsn, source.schema, ["t"])) as snapshot:
        table = snapshot.tables[0]
        whole = ranges_of(table, 1 << 40)
        assert len(whole) == 1 and table.bytes > 200 << 20
        done = subprocess.run(
            [sys.executable, "-c", READS],
            input=pickle.dumps((source.dsn, snapshot.snapshot_id, plan_table(table, str), whole[0])),
            capture_output=True,
            timeout=120,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
    rows, kilobytes = (int(word) for word in done.stdout.split())
    assert rows == 200_000
    assert kilobytes < 60 << 10, "two hundred megabytes were read in batches of one"
