"""Maintenance scheduler and jobs, with a stand-in for Spark that takes its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import DataLoss, Unavailable
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake
from frazil.lake.maintenance import MaintenanceStep, last_runs_of
from frazil.pipeline.jobs import JobRunner, Lane
from frazil.pipeline.maintenance import MaintenanceJobs, MaintenanceScheduler, MaintenanceSteps
from frazil.pipeline.maintenance.spark_steps import Done
from frazil.registry import job_status, open_jobs, submit_job
from tests.lake.staging import append
from tests.lake_fixtures import some_table

OFTEN = MaintenanceSettings(interval_seconds=0.01, min_small_files=2)
PATIENCE_SECONDS = 120.0


@dataclass
class SlowWorker:
    """Works until it may end, or is given up."""

    may_end: threading.Event = field(default_factory=threading.Event)
    fails: list[Exception] = field(default_factory=list)
    began: list[MaintenanceStep] = field(default_factory=list)
    given_up: int = 0

    def prove(self, name: str) -> None:
        """It rewrites nothing."""

    def run(self, step: MaintenanceStep) -> Done:
        self.began.append(step)
        tries = self.given_up
        may_end = False
        while not may_end:
            may_end = self.may_end.wait(0.01)
            if self.given_up > tries:  # also where both happened since the last look
                raise Unavailable("cancelled", code="compact_failed")
        if self.fails:
            raise self.fails.pop(0)
        return Done(step, {"files_before": 2}, 0.1)

    def cancel(self) -> None:
        self.given_up += 1


@dataclass
class Scene:
    name: str
    worker: SlowWorker
    notes: list[dict[str, Any]]
    behind: bool = False


@asynccontextmanager
async def upkeep(lake: Lake, settings: MaintenanceSettings, **scene: Any) -> AsyncIterator[Scene]:
    spec = some_table()
    lake.create(spec, stream=spec.short_name, identity="i")
    for number in range(3):
        append(lake, spec.name, [{"v": number}])
    found = Scene(spec.name, SlowWorker(), [], **scene)

    def note(kind: str, **entry: Any) -> None:
        found.notes.append({"kind": kind, **entry})

    steps, lane = MaintenanceSteps(lake, found.worker, settings, note), Lane(["maintenance"], gives_way=True)
    handlers = {"maintenance": MaintenanceJobs(steps, settings, snapshot_budget=100)}
    works: list[MaintenanceScheduler | JobRunner] = [
        MaintenanceScheduler(lake, steps, lane, settings, snapshot_budget=100),
        JobRunner(lake, handlers, note, lanes=[lane]),
    ]
    tasks = [asyncio.create_task(work.run(lambda: found.behind)) for work in works]
    yield found
    found.worker.may_end.set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


async def test_steps_come_one_at_a_time_and_are_told(lake: Lake) -> None:
    async with upkeep(lake, OFTEN) as scene:
        await until(lambda: scene.worker.began)
        await asyncio.sleep(0.5)
        assert [step.what for step in scene.worker.began] == ["compact"], "the next one waits for its end"
        scene.worker.may_end.set()
        await until(lambda: len(scene.notes) >= 2)
        assert [note["kind"] for note in scene.notes[:2]] == ["maintenance", "maintenance"]
        assert [note["what"] for note in scene.notes[:2]] == ["compact", "remove_orphans"]
        assert scene.notes[0]["table"] == scene.name and scene.notes[0]["files_before"] == 2
        await until(lambda: last_runs_of(lake.registry, lake.table(scene.name).uuid).orphans_sought_at)


async def test_a_step_is_given_up_when_a_table_falls_behind(lake: Lake) -> None:
    async with upkeep(lake, OFTEN) as scene:
        await until(lambda: scene.worker.began)
        scene.behind = True
        await until(lambda: any(note["kind"] == "maintenance_failed" for note in scene.notes))
        began = len(scene.worker.began)
        await asyncio.sleep(1.5)
        assert len(scene.worker.began) == began, "and none begins before it has caught up"
        scene.worker.may_end.set()
        scene.behind = False
        await until(lambda: any(note["kind"] == "maintenance" for note in scene.notes))


async def test_what_is_asked_for_is_done_though_the_schedule_is_off(lake: Lake) -> None:
    async with upkeep(lake, OFTEN.model_copy(update={"enabled": False})) as scene:
        scene.worker.may_end.set()
        scene.worker.fails = [Unavailable("a commit came first")]
        request = submit_job(lake.registry, "maintenance", scene.name, {"what": "compact", "sort": ["v"]})
        await until(lambda: not open_jobs(lake.registry))
        told = job_status(lake.registry, request.id)
        assert told is not None and told["state"] == "done" and told["steps"][0]["files_before"] == 2
        assert [step.sort for step in scene.worker.began] == [("v",), ("v",)], "tried again after the conflict"


async def test_a_request_that_cannot_be_done_is_answered(lake: Lake) -> None:
    async with upkeep(lake, OFTEN.model_copy(update={"enabled": False})):
        asked = [
            submit_job(lake.registry, "maintenance", "main.absent", {"what": what}) for what in ("compact", "explode")
        ]
        await until(lambda: not open_jobs(lake.registry))
        for request in asked:
            told = job_status(lake.registry, request.id)
            assert told is not None and told["state"] == "failed" and told["error"]["code"] == "table_not_found"


async def test_after_a_failed_audit_the_table_is_left_alone(lake: Lake) -> None:
    async with upkeep(lake, OFTEN) as scene:
        scene.worker.fails = [DataLoss("other rows", code="rewrite_audit_failed")]
        scene.worker.may_end.set()
        await until(lambda: scene.notes)
        await asyncio.sleep(2.5)
        assert len(scene.worker.began) == 1
        assert [note["code"] for note in scene.notes] == ["rewrite_audit_failed"]


async def test_what_is_asked_for_waits_for_commits_and_gives_way_to_them(lake: Lake) -> None:
    async with upkeep(lake, OFTEN.model_copy(update={"enabled": False}), behind=True) as scene:
        asked = submit_job(lake.registry, "maintenance", scene.name, {"what": "compact"})
        await asyncio.sleep(1.5)
        assert not scene.worker.began, "none begins while a table is behind"
        assert job_status(lake.registry, asked.id)["state"] == "waiting", "and a job that waits is not begun"
        scene.behind = False
        await until(lambda: scene.worker.began)
        assert job_status(lake.registry, asked.id)["state"] == "running"
        scene.behind = True
        await until(lambda: scene.worker.given_up)
        scene.worker.may_end.set()
        scene.behind = False
        await until(lambda: not open_jobs(lake.registry))
        assert job_status(lake.registry, asked.id)["state"] == "done" and len(scene.worker.began) == 2


async def test_planned_steps_and_those_asked_for_take_turns(lake: Lake) -> None:
    async with upkeep(lake, OFTEN) as scene:
        await until(lambda: scene.worker.began)
        asked = submit_job(lake.registry, "maintenance", scene.name, {"what": "compact", "sort": ["v"]})
        await asyncio.sleep(1.5)
        assert len(scene.worker.began) == 1, "one step at a time"
        scene.worker.may_end.set()
        await until(lambda: not open_jobs(lake.registry))
        assert job_status(lake.registry, asked.id)["state"] == "done"
        assert [step.sort for step in scene.worker.began if step.sort] == [("v",)]


async def test_a_request_that_is_cut_off_stays_open(lake: Lake) -> None:
    async with upkeep(lake, OFTEN.model_copy(update={"enabled": False})) as scene:
        asked = submit_job(lake.registry, "maintenance", scene.name, {"what": "compact"})
        await until(lambda: scene.worker.began)
        scene.worker.fails = [Unavailable("cancelled")]
    assert open_jobs(lake.registry) == [asked] and len(scene.worker.began) == 1
