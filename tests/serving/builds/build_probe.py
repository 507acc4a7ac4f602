"""Doing the open builds of a lake, in a process of their own that a test kills at a crash point."""

from __future__ import annotations

from pathlib import Path

from frazil.registry import finish_job, open_jobs
from frazil.requests import BUILD
from frazil.serving import SearchSettings
from tests.kills import Address
from tests.serving.builds.yard import Yard

SETTINGS = SearchSettings(keep_artifacts=2, grace_seconds=0)


def do_builds(there: Address, folder: str, own_process: bool = False) -> None:
    yard = Yard(there.open(), Path(folder), SETTINGS, own_process=own_process)
    for job in open_jobs(yard.lake.registry, [BUILD.name]):
        finish_job(yard.lake.registry, job, {"state": "done", **yard.builds.run(job, lambda progress: None)})
