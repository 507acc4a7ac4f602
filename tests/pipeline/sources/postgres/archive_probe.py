"""Doing the open Postgres jobs of a lake, in a process of their own that a test kills at a crash point."""

from __future__ import annotations

from pathlib import Path

from frazil.events.declaration import TableSpec
from frazil.lake.catalog import Lake, LakeTable, create_entity
from frazil.pipeline import SourceSettings
from frazil.pipeline.sources.postgres import LoadServices, PostgresLoads
from frazil.registry import finish_job, open_jobs
from tests.kills import Address
from tests.pipeline.in_process import FolderSender, InProcessTasks, KeptSender


def tools(lake: Lake, *, tasks: InProcessTasks | None = None, sender: KeptSender | None = None) -> LoadServices:
    def make(spec: TableSpec) -> LakeTable:
        if spec.kind == "entity":
            return create_entity(lake, spec, stream=spec.name, identity="i").base
        return lake.create(spec, stream=spec.name, identity="i")

    return LoadServices(lake, tasks or InProcessTasks(), make, sender or KeptSender(), lambda name: None)


def do_postgres_jobs(there: Address, dsn_file: Path, schema: str, sent: Path) -> None:
    lake = there.open()
    source = SourceSettings.model_validate({"dsn_file": dsn_file, "schema": schema})
    loads = PostgresLoads(tools(lake, sender=FolderSender(sent)), {"shop": source}, reports=sent)
    for job in open_jobs(lake.registry, ["postgres"]):
        finish_job(lake.registry, job, {"state": "done", **loads.run(job, lambda progress: None)})
