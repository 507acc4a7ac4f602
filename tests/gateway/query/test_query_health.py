"""What health says of the query workers: the truth, also when it is an error of ours that keeps queries waiting."""

from __future__ import annotations

import asyncio
import errno
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.gateway import Gateway
from frazil.gateway import health as parts
from frazil.gateway.health import PartsHealth
from frazil.serving.sql import QueryPool, QuerySettings, QueryTimeout, SqlQuery, stall_clock
from frazil.serving.sql.fair_queue import Slot
from tests.processes import stop
from tests.serving.sql.tables import House


def part(pool: QueryPool) -> dict[str, Any]:
    return PartsHealth(cast(Gateway, None)).query(pool)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def ask(pool: QueryPool) -> bytes:
    return (await pool.run(SqlQuery("SELECT 1", "ann"), lambda: [])).body


async def test_queries_that_never_come_to_their_turn_are_degraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_clock, "USUAL_SECONDS", 0.2)
    pool = QueryPool(QuerySettings(workers=1), House(tmp_path / "warehouse").warehouse)
    await pool.start()
    try:
        assert part(pool)["status"] == "ok"
        loop = asyncio.get_running_loop()
        lost = Slot("eve", loop.time(), loop.create_future(), "fast")
        lost.granted.set_result(None)  # as if its query had left without giving it back
        pool._queue._held[lost] = None
        waiting = asyncio.create_task(ask(pool))
        await until(lambda: part(pool)["status"] == "degraded")
        assert "none came to its turn" in part(pool)["reason"]
        pool._queue._leave(lost)
        assert await waiting == b"[[1]]"
        assert part(pool) == {"status": "ok", "workers": pool.status()["workers"]}
    finally:
        await pool.close()


async def test_short_waits_that_all_end_in_vain_are_degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller waits for as long as usual, and none gets a place."""
    monkeypatch.setattr(stall_clock, "USUAL_SECONDS", 0.2)
    pool = QueryPool(QuerySettings(workers=1), House(tmp_path / "warehouse").warehouse)
    await pool.start()
    try:
        loop = asyncio.get_running_loop()
        lost = Slot("eve", loop.time(), loop.create_future(), "fast")
        lost.granted.set_result(None)
        pool._queue._held[lost] = None
        for _ in range(4):
            with pytest.raises(QueryTimeout):
                await pool.run(SqlQuery("SELECT 1", "ann", timeout_seconds=0.1), lambda: [])
        assert part(pool)["status"] == "degraded"
        monkeypatch.setattr(stall_clock, "FORGOTTEN_SECONDS", 0.0)
        assert part(pool)["status"] == "ok", "nobody has asked for a while"
    finally:
        await pool.close()


async def test_workers_that_stand_still_are_degraded_and_replaced(tmp_path: Path) -> None:
    pool = QueryPool(QuerySettings(workers=1), House(tmp_path / "warehouse").warehouse)
    await pool.start()
    try:
        await until(lambda: pool.status()["ready"] == 2 and not pool._starting)
        stopped = [worker.pid for worker in pool._processes.workers.values()]
        for pid in stopped:
            stop(pid)
        assert part(pool)["status"] == "degraded" and "stand still" in part(pool)["reason"]
        assert await ask(pool) == b"[[1]]", "none of them is given a query"
        await until(lambda: part(pool)["status"] == "ok")
        assert not {worker.pid for worker in pool._processes.workers.values()} & set(stopped)
    finally:
        await pool.close()


async def test_accounts_that_do_not_add_up_are_degraded(tmp_path: Path) -> None:
    pool = QueryPool(QuerySettings(workers=1), House(tmp_path / "warehouse").warehouse)
    await pool.start()
    try:
        await until(lambda: pool.status()["ready"] == 2 and not pool._starting)
        lost = pool._idle.pop()
        assert part(pool)["status"] == "degraded"
        assert part(pool)["reason"] == "query workers that belong to nobody: 1"
        pool._give(lost)
        assert part(pool)["status"] == "ok"
    finally:
        await pool.close()


async def test_workers_that_do_not_start_are_down_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_NO_WORKER_SECONDS", 0.3)
    pool = QueryPool(QuerySettings(workers=1), House(tmp_path / "warehouse").warehouse)
    await until(lambda: part(pool)["status"] == "down")  # never started
    await pool.start()
    try:
        assert part(pool)["status"] == "ok"
        with monkeypatch.context() as broken:

            def refuse(*given: Any, **named: Any) -> None:
                raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

            broken.setattr(subprocess, "Popen", refuse)
            pool._processes.end()
            assert part(pool)["status"] == "starting"
            await until(lambda: part(pool)["status"] == "down")
            assert "no query worker" in part(pool)["reason"]
        await until(lambda: part(pool)["status"] == "ok")
    finally:
        await pool.close()
