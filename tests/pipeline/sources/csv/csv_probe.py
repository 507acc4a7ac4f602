"""Doing the open CSV jobs of a lake, in a process of their own that a test kills at a crash point."""

from __future__ import annotations

from pathlib import Path

from frazil.events.declaration import TableSpec
from frazil.lake.catalog import LakeTable
from frazil.pipeline.sources.csv import CsvLoads
from frazil.registry import finish_job, open_jobs
from tests.kills import Address
from tests.pipeline.in_process import FolderSender, InProcessTasks


def do_csv_jobs(there: Address, sent: Path) -> None:
    lake = there.open()

    def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
        return lake.create(spec, stream="s", identity="i", location=location)

    loads = CsvLoads(lake, InProcessTasks(), make, FolderSender(sent))
    for job in open_jobs(lake.registry, ["csv"]):
        finish_job(lake.registry, job, {"state": "done", **loads.run(job, lambda progress: None)})
