"""Does the open archives of a lake in a process of its own, which a test kills at a crash point."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from frazil.lake import finish_job, open_jobs, open_lake
from frazil.pipeline.postgres.job import PostgresLoads
from frazil.pipeline.settings import SourceSettings
from frazil.storage import Warehouse
from tests.pipeline.in_process import InProcessTasks


def main() -> None:
    catalog_url, url, dsn_file, schema = sys.argv[1:]
    lake = open_lake(catalog_url, Warehouse(url))
    source = SourceSettings.model_validate({"dsn_file": dsn_file, "schema": schema})
    loads = PostgresLoads(lake, InProcessTasks(), {"shop": source}, reports=Path(tempfile.mkdtemp()))
    for job in open_jobs(lake.registry, ["postgres"]):
        finish_job(lake.registry, job, {"state": "done", **loads.do(job, lambda progress: None)})


if __name__ == "__main__":
    main()
