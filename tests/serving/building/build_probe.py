"""Doing the open builds of a lake, in a process of their own that a test kills at a crash point."""

from __future__ import annotations

from pathlib import Path

from frazil.lake import finish_job, open_jobs
from frazil.serving.building.ask import KIND
from frazil.serving.settings import SearchSettings
from tests.kills import Address
from tests.serving.building.yard import Yard

SETTINGS = SearchSettings(keep_artifacts=2, grace_seconds=0)


def do_builds(there: Address, folder: str, own_process: bool = False) -> None:
    yard = Yard(there.open(), Path(folder), SETTINGS, own_process=own_process)
    for job in open_jobs(yard.lake.registry, [KIND]):
        finish_job(yard.lake.registry, job, {"state": "done", **yard.builds.do(job, lambda progress: None)})
