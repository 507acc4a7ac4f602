"""Builds beside a real Spark: what it compacts is the same, and what it folds is built."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

from frazil.errors import FrazilError
from frazil.pipeline.entities import FoldCommitter
from frazil.pipeline.jobs import EMBED, SparkTasks
from tests.lake.staging import append
from tests.lake_fixtures import SparkLake
from tests.pipeline.embeddings.place import NOTES
from tests.pipeline.embeddings.test_on_spark import SparkPlace
from tests.serving.builds.yard import Yard

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def yard(spark_lake: SparkLake, tmp_path: Path) -> Yard:
    found = Yard(spark_lake.lake, tmp_path)
    found.place = SparkPlace(spark_lake)
    return found


def test_a_compaction_changes_nothing_and_costs_no_vector(yard: Yard) -> None:
    name = "main.built_notes"
    yard.place.declare(name="built_notes")
    for at in range(0, 20, 5):
        append(yard.lake, name, [{"_id": f"n{n:02}", "body": f"Text {n}."} for n in range(at, at + 5)])
    assert yard.build("built_notes")["vectors"] == 20
    assert isinstance(yard.place, SparkPlace)
    yard.place.compact(name)
    told = yard.build("built_notes")
    assert not told["built"], "the rows are the same"
    append(yard.lake, name, [{"_id": "new", "body": "New."}])
    yard.place.embed("built_notes")
    yard.place.compact(f"{name}__embeddings")
    yard.place.compact(name)
    told = yard.build("built_notes")
    assert (told["built"], told["vectors_kept"], told["vectors_read"]) == (True, 20, 1)
    assert told["snapshot_id"] == yard.lake.table(name).snapshot_id
    assert len(yard.fetched(name).rows) == 21


def test_an_entity_is_folded_by_spark_and_built(yard: Yard, spark_lake: SparkLake) -> None:
    columns = {"id": "long", "title": "string", "body": "string"}
    yard.place.declare(**{**NOTES, "name": "built_things", "kind": "entity", "key": ["id"], "columns": columns})
    name = "main.built_things"

    def fold(entity: str) -> None:
        while FoldCommitter(spark_lake.lake, entity, spark_lake.session).fold() is not None:
            pass

    yard.builds.services = type(yard.builds.services)(fold, yard.embed, yard.say)
    append(yard.lake, f"{name}__history", [{"id": n, "body": f"Text {n}.", "_op": "upsert"} for n in range(6)])
    assert yard.build("built_things")["rows"] == 6
    changes = [{"id": 2, "_op": "delete"}, {"id": 3, "body": "Changed.", "_op": "upsert"}]
    append(yard.lake, f"{name}__history", changes)
    told = yard.build("built_things")
    assert (told["rows"], told["vectors_kept"], told["vectors_read"]) == (5, 4, 1)
    assert {row["id"]: row["body"] for row in yard.fetched(name).rows} == {
        n: "Changed." if n == 3 else f"Text {n}." for n in (0, 1, 3, 4, 5)
    }
    assert not yard.build("built_things")["built"]


def test_embeddings_do_not_wait_for_a_load_of_many_pieces(spark_lake: SparkLake) -> None:
    """Far more pieces than cores are queued; those of the other pool come among them, not behind them."""
    under_way, over = threading.Event(), threading.Event()
    long, short = SparkTasks(spark_lake.session), SparkTasks(spark_lake.session, EMBED)

    def load() -> None:
        with contextlib.suppress(FrazilError):
            long.run([0.2] * 1000, time.sleep, doing="load", report_done=lambda done: under_way.set() if done else None)
        over.set()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert under_way.wait(60)
        assert short.run([0.0, 0.0], time.sleep, doing="embed") == [None, None]
        assert not over.is_set()
    finally:
        long.cancel()
        thread.join(60)
    assert over.is_set()
