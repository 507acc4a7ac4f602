"""Job runner: handlers that a test commands."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import InvalidInput, Unavailable
from frazil.lake.catalog import Lake, open_lake
from frazil.pipeline.jobs import JobHandler, JobRunner, JobTrigger, Lane
from frazil.registry import Job, ProgressCallback, job_status, open_jobs, set_progress, submit_job
from frazil.storage import Journal, Warehouse

PATIENCE_SECONDS = 120.0


class Commanded:
    """Does what the test says next."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.began: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.cancelled = False

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        self.began.append(job.id)
        report_progress({"read": 1, "of": 2})
        assert self.may_end.wait(PATIENCE_SECONDS)
        outcome = self.outcomes.pop(0) if self.outcomes else {"seconds": 1.5, "table": "orders", "kind": "told"}
        if isinstance(outcome, Exception):
            raise outcome
        return dict(outcome)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))


@contextlib.asynccontextmanager
async def running(
    lake: Lake, journal: Journal, handler: JobHandler, *triggers: JobTrigger, lane: Lane | None = None
) -> AsyncIterator[None]:
    runner = JobRunner(lake, {"csv": handler}, journal.append, lanes=[lane or Lane(["csv"])], triggers=triggers)
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def state_of(lake: Lake, job: Job, *wanted: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (told := job_status(lake.registry, job.id))["state"] not in wanted:
            await asyncio.sleep(0.05)
    return told


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


async def test_jobs_are_done_in_order_and_told(lake: Lake, journal: Journal) -> None:
    handler = Commanded()
    first, second = (submit_job(lake.registry, "csv", "main.orders", {}) for _ in range(2))
    other = submit_job(lake.registry, "maintenance", "main.orders", {})
    async with running(lake, journal, handler):
        told = await state_of(lake, second, "done")
    assert handler.began == [first.id, second.id] and told["seconds"] == 1.5
    assert open_jobs(lake.registry) == [other], "what others do is left to them"
    entries = journal.read(kind="job")
    assert [(entry["job"], entry["report"]["state"], entry["report"]["seconds"]) for entry in entries] == [
        (second.id, "done", 1.5),
        (first.id, "done", 1.5),
    ]


async def test_what_passes_is_tried_again_and_what_does_not_is_told(lake: Lake, journal: Journal) -> None:
    handler = Commanded(
        Unavailable("not now"), {"rows": 1}, InvalidInput("never", code="bad_load", hint="mend it"), KeyError("x")
    )
    jobs = [submit_job(lake.registry, "csv", "main.orders", {}) for _ in range(3)]
    async with running(lake, journal, handler, lane=Lane(["csv"], pauses_seconds=(0.0, 0.0))):
        told = [await state_of(lake, job, "done", "failed") for job in jobs]
    assert [job["state"] for job in told] == ["done", "failed", "failed"]
    assert told[1]["error"] == {"code": "bad_load", "message": "never", "hint": "mend it"}
    assert told[2]["error"]["code"] == "internal" and len(handler.began) == 4


async def test_a_job_that_is_cut_off_stays_open(lake: Lake, journal: Journal) -> None:
    handler = Commanded()
    handler.may_end.clear()
    job = submit_job(lake.registry, "csv", "main.orders", {})
    async with running(lake, journal, handler):
        told = await state_of(lake, job, "running")
    assert told["progress"] in ({"begun": 1}, {"begun": 1, "read": 1, "of": 2})
    assert handler.cancelled and open_jobs(lake.registry) == [job]
    handler.may_end.set()


async def test_a_job_that_takes_the_process_with_it_is_given_up(lake: Lake, journal: Journal) -> None:
    handler = Commanded()
    job = submit_job(lake.registry, "csv", "main.orders", {})
    set_progress(lake.registry, job, {"begun": 5})
    async with running(lake, journal, handler):
        told = await state_of(lake, job, "failed")
    assert told["error"]["code"] == "job_given_up" and handler.began == []


async def test_triggers_submit_jobs_and_one_that_fails_does_not_stop_the_others(lake: Lake, journal: Journal) -> None:
    class Failing:
        def poll(self, now: datetime) -> None:
            raise RuntimeError("a trigger of this test")

    class Once:
        job: Job | None = None

        def poll(self, now: datetime) -> None:
            assert now.tzinfo is UTC
            if self.job is None:
                self.job = submit_job(lake.registry, "csv", "main.orders", {})

    once = Once()
    async with running(lake, journal, Commanded(), Failing(), once):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while once.job is None:
                await asyncio.sleep(0.05)
        await state_of(lake, once.job, "done")


async def test_jobs_of_two_lanes_do_not_wait_for_each_other(lake: Lake, journal: Journal) -> None:
    slow, quick = Commanded(), Commanded()
    slow.may_end.clear()
    handlers = {"csv": slow, "postgres": slow, "build": quick}
    runner = JobRunner(lake, handlers, journal.append, lanes=[Lane(["csv", "postgres"]), Lane(["build"])])
    first, second = (submit_job(lake.registry, kind, "main.orders", {}) for kind in ("csv", "postgres"))
    task = asyncio.create_task(runner.run())
    await state_of(lake, first, "running")
    builds = [submit_job(lake.registry, "build", "main.notes", {}) for _ in range(2)]
    for job in builds:
        await state_of(lake, job, "done")
    assert quick.began == [job.id for job in builds], "in their order"
    assert slow.began == [first.id], "kinds of one lane share it"
    slow.may_end.set()
    await state_of(lake, second, "done")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert slow.cancelled and quick.cancelled


async def test_callers_take_turns(lake: Lake, journal: Journal) -> None:
    handler = Commanded()
    handler.may_end.clear()
    greedy = [submit_job(lake.registry, "csv", "main.orders", {}, asked_by="greedy") for _ in range(10)]
    async with running(lake, journal, handler):
        await state_of(lake, greedy[0], "running")
        modest = submit_job(lake.registry, "csv", "main.orders", {}, asked_by="modest")
        handler.may_end.set()
        await state_of(lake, modest, "done")
        for job in greedy:
            await state_of(lake, job, "done")
    assert handler.began == [greedy[0].id, modest.id, *(job.id for job in greedy[1:])]


async def test_a_lane_that_is_cancelled_amid_its_work_goes_on_with_the_next() -> None:
    """Who comes next waits for the end of the thread that was left behind, and then has its turn."""
    lane = Lane(["csv"])
    may_end, order = threading.Event(), []

    def slow() -> None:
        order.append("first begins")
        may_end.wait(60)
        order.append("first ends")

    first = asyncio.create_task(lane.run(slow, cancel=may_end.set, is_behind=lambda: False))
    async with asyncio.timeout(60):
        while not order:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(lane.run(lambda: order.append("second"), cancel=may_end.set, is_behind=bool))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        await second
    assert first.cancelled() and order == ["first begins", "first ends", "second"]
