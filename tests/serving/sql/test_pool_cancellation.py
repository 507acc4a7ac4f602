"""The pool with real workers, and callers that leave at any moment: no place and no process is lost."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from frazil.errors import Unavailable
from frazil.serving.sql import QueryPool, QuerySettings, QueryTimeout, SqlQuery, stall_clock
from frazil.serving.sql.fair_queue import Slot
from frazil.serving.sql.worker_processes import WorkerProcesses
from tests.serving.sql.tables import House

# Runs for minutes and needs no memory.
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 8"
SETTINGS = QuerySettings(workers=2, slow_workers=3, slow_per_owner=2, slow_after_seconds=0.3)
ROUNDS = 300
CONNECTIONS = 12


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("house") / "warehouse")


@pytest_asyncio.fixture
async def pool(house: House) -> AsyncIterator[QueryPool]:
    made = QueryPool(SETTINGS, house.warehouse)
    await made.start()
    yield made
    await made.close()


async def ask(pool: QueryPool, sql: str = "SELECT 1", owner: str = "ann", timeout_seconds: float = 60.0) -> bytes:
    return (await pool.run(SqlQuery(sql, owner, timeout_seconds=timeout_seconds), lambda: [])).body


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


def is_whole(pool: QueryPool) -> bool:
    """Whether everything is back: no place taken, nobody waiting, every worker idle."""
    told = pool.status()
    idle = SETTINGS.workers + 1
    assert told["faults"] == []
    return [told[name] for name in ("busy", "slow", "queue", "workers", "ready")] == [0, 0, 0, idle, idle]


async def test_callers_that_leave_at_once_take_no_place_with_them(pool: QueryPool) -> None:
    random = Random(1)
    askers = [asyncio.create_task(ask(pool, ENDLESS, "eve", 1.0)) for _ in range(CONNECTIONS)]
    for _ in range(ROUNDS):
        # Several leave and come in one step: a place is free, the next in the queue is about to leave, another asks.
        for _ in range(random.randint(1, CONNECTIONS)):
            askers.pop(random.randrange(len(askers))).cancel()
            askers.append(asyncio.create_task(ask(pool, ENDLESS, "eve", 1.0)))
        await asyncio.sleep(random.choice([0, 0, 0.005, 0.02]))
        assert pool.faults() == []
    for asker in askers:
        asker.cancel()
    await asyncio.wait(askers)
    assert await ask(pool, owner="bob") == b"[[1]]"
    await until(lambda: is_whole(pool))
    assert await ask(pool, owner="eve") == b"[[1]]"


async def test_a_cancellation_after_every_number_of_steps(pool: QueryPool) -> None:
    for steps in range(25):
        askers = [asyncio.create_task(ask(pool, owner=f"owner {number}")) for number in range(6)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for asker in askers[::2]:
            asker.cancel()
        assert await asyncio.gather(*askers[1::2]) == [b"[[1]]"] * 3
        assert pool.faults() == []
    await until(lambda: is_whole(pool))


async def test_a_worker_handed_to_one_who_leaves_goes_to_the_next(pool: QueryPool) -> None:
    await until(lambda: is_whole(pool))
    idle, pool._idle[:] = list(pool._idle), []
    leaving, staying = [asyncio.create_task(ask(pool, owner=owner)) for owner in ("ann", "bob")]
    await until(lambda: len(pool._leases) == 2)
    for worker in idle:
        pool._give(worker)
    leaving.cancel()
    assert await staying == b"[[1]]"
    await until(lambda: is_whole(pool))


async def test_who_waits_is_told_when_the_pool_ends(house: House) -> None:
    pool = QueryPool(SETTINGS, house.warehouse)
    early = asyncio.create_task(ask(pool))
    await until(lambda: len(pool._leases) == 1)
    await pool.close()
    with pytest.raises(Unavailable, match="were ended"):
        await early
    with pytest.raises(Unavailable, match="were ended"):
        await ask(pool)
    await pool.start()
    crowd = [asyncio.create_task(ask(pool, ENDLESS)) for _ in range(8)]
    await until(lambda: pool.status()["queue"] > 0)
    await pool.close()
    assert all(isinstance(outcome, Exception) for outcome in await asyncio.gather(*crowd, return_exceptions=True))
    assert pool.faults() == [] and pool.status()["workers"] == 0


async def test_a_start_that_is_cancelled_leaves_no_process(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[subprocess.Popen[bytes]] = []
    launch = WorkerProcesses._launch

    def noting(self: WorkerProcesses) -> None:
        launch(self)
        launched.append(self._process)

    monkeypatch.setattr(WorkerProcesses, "_launch", noting)
    for seconds in (0.0, 0.1, 0.7, 1.2):
        pool = QueryPool(SETTINGS, house.warehouse)
        starting = asyncio.create_task(pool.start())
        await asyncio.sleep(seconds)
        starting.cancel()
        await asyncio.wait({starting})
        await pool.close()
        assert pool.status()["workers"] == 0
    assert launched
    assert all(process.returncode is not None for process in launched)


async def test_a_worker_whose_start_is_cancelled_is_ended(pool: QueryPool) -> None:
    await until(lambda: is_whole(pool))
    for seconds in (0.0, 0.002, 0.005, 0.01, 0.02):
        starting = asyncio.create_task(pool._processes.spawn())
        await asyncio.sleep(seconds)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result().kill()
    await until(lambda: len(_children(pool)) == SETTINGS.workers + 1)


async def test_a_fork_server_that_cannot_be_started_is_tried_again(
    pool: QueryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of processes, say: the error passes, and the one that starts the fork server must outlive it."""
    refused: list[Any] = []
    launch = subprocess.Popen

    def short_of_processes(*given: Any, **named: Any) -> Any:
        if len(refused) < 2:
            refused.append(given)
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return launch(*given, **named)

    monkeypatch.setattr(subprocess, "Popen", short_of_processes)
    pool._processes.end()
    await until(lambda: len(refused) == 2)
    assert await ask(pool) == b"[[1]]"


async def test_lost_places_are_told(pool: QueryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever took them: queries wait, none begins, and none that runs has time left."""
    monkeypatch.setattr(stall_clock, "USUAL_SECONDS", 0.2)
    await until(lambda: is_whole(pool))
    loop = asyncio.get_running_loop()
    lost = [Slot(owner, loop.time(), loop.create_future(), "fast") for owner in ("eve", "eve")]
    pool._queue._held.update(dict.fromkeys(lost))
    waiting = asyncio.create_task(ask(pool))
    await until(lambda: pool.status()["stalled_seconds"] > 0)
    assert pool.status()["faults"] != []
    # Also when the caller had enough of it, and until a query comes to its turn again.
    waiting.cancel()
    await asyncio.wait({waiting})
    assert pool.status()["stalled_seconds"] > 0
    for slot in lost:
        pool._queue._leave(slot)
    assert await ask(pool) == b"[[1]]"
    assert pool.status()["stalled_seconds"] == 0


async def test_long_queries_and_short_waits_are_no_stall(pool: QueryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_clock, "USUAL_SECONDS", 0.2)
    await until(lambda: is_whole(pool))
    early = asyncio.create_task(ask(pool))
    await asyncio.sleep(0)
    early.cancel()
    running = [asyncio.create_task(ask(pool, ENDLESS, "eve")) for _ in range(2)]
    await until(lambda: pool.status()["slow"] == 2)
    with pytest.raises(QueryTimeout):
        await ask(pool, owner="eve", timeout_seconds=0.5)
    assert pool.status()["stalled_seconds"] == 0
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    await asyncio.sleep(0.3)
    assert pool.status()["stalled_seconds"] == 0


async def test_without_workers_the_pool_says_for_how_long(house: House) -> None:
    pool = QueryPool(SETTINGS, house.warehouse)
    await asyncio.sleep(0.01)
    assert pool.status()["down_seconds"] > 0
    await pool.start()
    assert pool.status()["down_seconds"] == 0
    await pool.close()
    assert pool.status()["down_seconds"] > 0


def _children(pool: QueryPool) -> list[str]:
    pid = pool._processes._process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
