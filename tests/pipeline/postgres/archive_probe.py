"""Does the open archives of a lake in a process of its own, which a test kills at a crash point."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from frazil.events.table import TableSpec
from frazil.lake import Lake, LakeTable, create_entity, finish_job, open_jobs, open_lake
from frazil.pipeline.postgres.job import PostgresLoads
from frazil.pipeline.postgres.refresh import Tools
from frazil.pipeline.settings import SourceSettings
from frazil.storage import Warehouse
from tests.pipeline.in_process import FolderSender, InProcessTasks, KeptSender


def tools(lake: Lake, *, tasks: InProcessTasks | None = None, sender: KeptSender | None = None) -> Tools:
    def make(spec: TableSpec) -> LakeTable:
        if spec.kind == "entity":
            return create_entity(lake, spec, stream=spec.name, identity="i").base
        return lake.create(spec, stream=spec.name, identity="i")

    return Tools(lake, tasks or InProcessTasks(), make, sender or KeptSender(), lambda name: None)


def main() -> None:
    catalog_url, url, dsn_file, schema, sent = sys.argv[1:]
    lake = open_lake(catalog_url, Warehouse(url))
    source = SourceSettings.model_validate({"dsn_file": dsn_file, "schema": schema})
    loads = PostgresLoads(
        tools(lake, sender=FolderSender(Path(sent))), {"shop": source}, reports=Path(tempfile.mkdtemp())
    )
    for job in open_jobs(lake.registry, ["postgres"]):
        finish_job(lake.registry, job, {"state": "done", **loads.do(job, lambda progress: None)})


if __name__ == "__main__":
    main()
