"""Does the open CSV jobs of a lake in a process of its own, which a test kills at a crash point."""

from __future__ import annotations

import sys
from pathlib import Path

from frazil.events.table import TableSpec
from frazil.lake import LakeTable, finish_job, open_jobs, open_lake
from frazil.pipeline.csv.job import CsvLoads
from frazil.storage import Warehouse
from tests.pipeline.in_process import FolderSender, InProcessTasks


def main() -> None:
    catalog_url, url, sent = sys.argv[1:]
    lake = open_lake(catalog_url, Warehouse(url))

    def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
        return lake.create(spec, stream="s", identity="i", location=location)

    loads = CsvLoads(lake, InProcessTasks(), make, FolderSender(Path(sent)))
    for job in open_jobs(lake.registry, ["csv"]):
        finish_job(lake.registry, job, {"state": "done", **loads.do(job, lambda progress: None)})


if __name__ == "__main__":
    main()
