"""Tables held back after the engine was lost: who is blamed, who stages beside whom, and what a kill leaves of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from frazil.pipeline.commit.row_errors import is_out_of_memory, may_be_of_rows
from frazil.pipeline.commit.suspects import ENGINE_LOST, Suspects, lost_with
from tests.kills import killed_at
from tests.lake_fixtures import SparkLake


def rows(*positions: int) -> pa.Table:
    return pa.table({"_seq": pa.array(positions, pa.int64())})


async def lose(suspects: Suspects, table: str, staged: pa.Table, messages: int = 1) -> list[str]:
    with pytest.raises(RuntimeError):
        async with suspects.stage(table, staged, messages):
            raise RuntimeError("no answer from the engine")
    return suspects.lost()


async def test_batches_halve_with_each_loss_and_double_with_each_commit(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    sizes = []
    for messages in (16, 8, 4, 2, 1):
        assert await lose(Suspects(path), "t", rows(1, 2), messages) == ["t"]
        found = Suspects(path).of("t")
        assert found is not None and found.code == ENGINE_LOST
        sizes.append(found.messages)
    assert sizes == [8, 4, 2, 1, 1]
    suspects = Suspects(path)
    for messages in (1, 2, 4, 8):
        assert not suspects.committed("t", messages)
    assert suspects.committed("t", 16) and Suspects(path).of("t") is None


async def test_a_table_with_nothing_more_to_commit_is_let_go(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    await lose(suspects, "t", rows(1), 16)
    assert suspects.committed("t", 3) and suspects.of("t") is None


async def test_all_stages_under_way_are_suspected_unless_one_was_alone(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    with pytest.raises(RuntimeError):
        async with suspects.stage("a", rows(1), 4), suspects.stage("b", rows(1), 4):
            raise RuntimeError
    suspects.ended("never begun")
    assert suspects.lost() == ["a", "b"]
    async with suspects.stage("c", rows(1), 4):
        pass
    assert await lose(suspects, "a", rows(1), 2) == ["a"]
    b = suspects.of("b")
    assert b is not None and b.losses == 1


async def test_a_stage_that_failed_with_the_engine_alive_is_not_blamed_later(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    with pytest.raises(RuntimeError):
        async with suspects.stage("a", rows(1), 4):
            raise RuntimeError
    suspects.ended("a")
    assert suspects.lost() == [] and not (tmp_path / "suspects.json").exists()


async def test_a_suspect_stages_beside_nobody_and_is_not_kept_waiting_by_newcomers(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    await lose(suspects, "held", rows(1), 4)
    under_way: set[str] = set()
    seen: list[str] = []
    free = {name: asyncio.Event() for name in ("first", "held", "second")}

    async def stage(name: str) -> None:
        async with suspects.stage(name, rows(1), 1):
            under_way.add(name)
            seen.append(name)
            assert under_way == {"held"} or "held" not in under_way
            await free[name].wait()
            under_way.discard(name)

    tasks = {}
    for name in ("first", "held", "second"):
        tasks[name] = asyncio.create_task(stage(name))
        await asyncio.sleep(0)
    assert seen == ["first"]
    free["first"].set()
    await tasks["first"]
    await asyncio.sleep(0.01)
    assert seen == ["first", "held"]
    free["held"].set()
    free["second"].set()
    await asyncio.gather(*tasks.values())
    assert seen == ["first", "held", "second"]


@pytest.mark.parametrize("cancelled", ["waiting alone", "alone", "shared"])
async def test_a_place_is_given_back_whatever_is_cancelled(tmp_path: Path, cancelled: str) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    await lose(suspects, "held", rows(1), 4)

    async def stage(name: str) -> None:
        async with suspects.stage(name, rows(1), 1):
            await asyncio.sleep(3600)

    first = asyncio.create_task(stage("held" if cancelled == "alone" else "other"))
    await asyncio.sleep(0)
    second = asyncio.create_task(stage("held"))
    await asyncio.sleep(0)
    for task in (second, first) if cancelled == "waiting alone" else (first, second):
        task.cancel()
        await asyncio.wait({task})
    async with asyncio.timeout(30):
        async with suspects.stage("held", rows(1), 1):
            pass
        async with suspects.stage("other", rows(1), 1):
            pass
    assert suspects.lost() == [], "what was cancelled is not under way"


async def test_rows_are_given_up_only_after_losses_alone(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    await lose(Suspects(path), "t", rows(5))
    assert lost_with(Suspects(path).of("t"), rows(5), ()) is None, "others were under way, or might have been"
    await lose(Suspects(path), "t", rows(5, 6, 7, 8))
    found = Suspects(path).of("t")
    assert lost_with(found, rows(5, 6, 7, 8), ()) is not None and lost_with(found, rows(1, 5, 8, 9), ()) is not None
    assert lost_with(found, rows(5, 6), ()) is None, "each half is tried"
    await lose(Suspects(path), "t", rows(5))
    assert lost_with(Suspects(path).of("t"), rows(5), ()) is None, "a single event is tried once more"
    assert lost_with(Suspects(path).of("t"), rows(5, 6), ()) is not None, "but in no company"
    await lose(Suspects(path), "t", rows(5))
    found = Suspects(path).of("t")
    error = lost_with(found, rows(5), ())
    assert error is not None and error.code == ENGINE_LOST
    assert lost_with(found, rows(6, 7, 8), {5}) is None and lost_with(found, rows(5, 6, 7, 8), {5}) is None


def write_down(path: str) -> None:
    asyncio.run(lose(Suspects(Path(path)), "t", rows(1), 2))


def test_a_kill_while_it_is_written_down_leaves_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    write_down(str(path))
    before = path.read_bytes()
    killed_at("before_suspects_replace", write_down, str(path))
    assert path.read_bytes() == before and Suspects(path).of("t") is not None
    path.write_text("{ not JSON")
    assert Suspects(path).all() == {}


def test_tables_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "suspects.json")
    with pytest.raises(RuntimeError), suspects.fold("e"):
        raise RuntimeError
    assert suspects.lost() == ["the fold of e"]
    suspects.keep_only(["e", "e__history"])
    assert list(suspects.all()) == ["the fold of e"]
    suspects.keep_only(["other"])
    assert suspects.all() == {}


@pytest.mark.parametrize(
    ("error", "of_rows"),
    [
        (ValueError("Value out of range"), True),
        (RuntimeError("org.apache.iceberg.exceptions.RuntimeIOException: Failed to create Parquet file"), True),
        (RuntimeError("S3Exception Status Code: 400").with_traceback(None), True),
        (RuntimeError("software.amazon.awssdk.services.s3.model.S3Exception: (Status Code: 503)"), False),
        (RuntimeError("java.io.IOException: No space left on device"), False),
        (RuntimeError("Caused by: java.lang.OutOfMemoryError: Java heap space"), False),
        (RuntimeError("org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure"), False),
        (ConnectionResetError("gone"), False),
        (Py4JNetworkError("Answer from Java side is empty"), False),
        (MemoryError(), False),
    ],
)
def test_trouble_of_the_engine_or_the_store_is_not_of_the_rows(error: Exception, of_rows: bool) -> None:
    assert may_be_of_rows(error) is of_rows
    outer = RuntimeError("cannot stage")
    outer.__cause__ = error
    assert may_be_of_rows(outer) is of_rows
    assert is_out_of_memory(outer) is ("OutOfMemory" in str(error))


@pytest.mark.parametrize(
    "value",
    ["cancelled", "No+space+left+on+device", "java.lang.OutOfMemoryError", "java.net.x", "org.postgresql.x"],
)
@pytest.mark.parametrize(
    "text",
    [
        "RuntimeIOException: Failed to create Parquet file\nCaused by: java.io.IOException: "
        "/lake/data/p={value}/0.parquet (File name too long)",
        "SparkRuntimeException: the value '{value}' cannot be cast",
    ],
)
def test_a_value_of_an_event_does_not_pass_for_an_error_of_the_engine(text: str, value: str) -> None:
    error = RuntimeError(text.format(value=value))
    assert may_be_of_rows(error) and not is_out_of_memory(error)


@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_that_runs_out_of_memory_ends(spark_lake: SparkLake) -> None:
    """Otherwise it goes on without some of its threads, and answers that all is well."""
    java: Any = spark_lake.session._jvm
    arguments = list(java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert "-XX:+ExitOnOutOfMemoryError" in arguments
