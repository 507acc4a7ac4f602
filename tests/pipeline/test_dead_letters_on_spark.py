"""Events that no file can hold, on real Spark: they become dead letters, and all others are committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import Unavailable
from frazil.events import first_position
from frazil.events.positions import position
from frazil.lake.derived import read_dead_letters
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.storage import local_path
from tests.lake_fixtures import SparkLake, declare, events, send, some_table, stored_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LONG = "cancelled: java.lang.OutOfMemoryError: No space left on device" + "x" * 300
"""As the name of a folder it is longer than a file system takes, and in an error it looks like one of the engine."""


async def test_a_partition_value_that_makes_no_folder_is_a_dead_letter_and_the_others_are_rows(
    spark_lake: SparkLake,
) -> None:
    spec = some_table(columns={"v": "long", "p": "string"}, partition=["p"])
    lake = spark_lake.lake
    table, stream = await declare(lake, MemoryBus(), spec)
    committer = Committer(
        SparkCommitTarget(lake, table.name, spark_lake.session),
        stream,
        window_seconds=3600,
        limits=BatchLimits(max_age_seconds=0),
    )
    await send(stream, events(spec, ["a", "b", "c"], v=[1, 2, 3], p=["x", "y", "x"]))
    await send(stream, events(spec, ["d", "poison", "e"], v=[4, 5, 6], p=["x", LONG, None]))
    await send(stream, events(spec, ["f"], v=[7], p=["y"]))
    done = await committer.cycle()
    assert done is not None and (done.rows, done.dead_letters) == (6, 1)
    assert stored_ids(lake, table.name) == ["a", "b", "c", "d", "e", "f"]
    after = lake.table(table.name)
    assert after.watermark == first_position(4)
    assert [s for s in after.every_snapshot() if (s.batch or "").startswith("attempt-")] == []
    folder = local_path(after.iceberg.location())
    assert len(list(folder.rglob("data/**/*.parquet"))) == after.files, "no attempt left a file behind"
    [letter] = read_dead_letters(lake, table.name)
    assert (letter["position"], letter["id"], letter["stream"]) == (position(2, 1), "poison", stream.identity)
    assert letter["data"] == f'{{"v":5,"p":"{LONG}"}}' and letter["code"] == "stage_failed" and letter["reason"]
    assert str(folder) not in letter["reason"], "a reader of dead letters need not know where files are"
    # The id is free again: a good event with it counts, once.
    await send(stream, events(spec, ["poison"], v=[5], p=["y"]))
    await send(stream, events(spec, ["poison"], v=[5], p=["y"]))
    done = await committer.cycle()
    assert done is not None and (done.rows, done.duplicates, done.dead_letters) == (1, 1, 0)
    assert stored_ids(lake, table.name) == ["a", "b", "c", "d", "e", "f", "poison"]


async def test_a_store_that_takes_no_files_makes_no_dead_letters(spark_lake: SparkLake) -> None:
    """The same failure to make a folder, for every row: it is the store's, and is tried again until it has passed."""
    spec = some_table(columns={"v": "long", "p": "string"}, partition=["p"])
    lake = spark_lake.lake
    table, stream = await declare(lake, MemoryBus(), spec)
    await send(stream, events(spec, ["a", "b"], v=[1, 2], p=["x", "y"]))
    data = local_path(table.iceberg.location()) / "data"
    Path(data).parent.mkdir(parents=True, exist_ok=True)
    data.write_text("a file where the folder of all data files should be")
    committer = Committer(SparkCommitTarget(lake, table.name, spark_lake.session), stream, window_seconds=3600)
    with pytest.raises(Unavailable):
        await committer.cycle()
    assert read_dead_letters(lake, table.name) == [] and lake.table(table.name).watermark == first_position(1)
    os.unlink(data)
    done = await committer.cycle()
    assert done is not None and (done.rows, done.dead_letters) == (2, 0)
