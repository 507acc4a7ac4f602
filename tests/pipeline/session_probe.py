"""Commits to S3 with a catalog on Postgres in a process of its own, and prints all that this process shows of itself.

Run by a test, which then looks for the secrets in what was printed.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import open_lake
from frazil.pipeline import open_session, packages
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.runtime import open_warehouse
from frazil.settings import load
from tests.lake_fixtures import declare, events, send


async def main() -> None:
    settings = load()
    warehouse = open_warehouse(settings)
    user, password = settings.catalog.user or "", settings.catalog.password
    assert password is not None
    opened = {"user": user, "password": password.get_secret_value()}
    lake = open_lake(settings.catalog_url, warehouse, name=settings.catalog.name, **opened)
    session = open_session(
        catalog_url=settings.catalog_url,
        catalog_name=settings.catalog.name,
        catalog_user=opened["user"],
        catalog_password=opened["password"],
        warehouse=warehouse,
        driver_memory="512m",
        extra={
            **settings.pipeline.spark_conf,
            "spark.jars.packages": packages(s3=True, postgres=True),
            "spark.log.level": "INFO",
        },
    )
    table, stream = await declare(lake, MemoryBus())
    await send(stream, events(table.spec, ["a"], v=[1]))
    target = SparkCommitTarget(lake, table.name, session)
    await Committer(target, stream, window_seconds=60.0, limits=BatchLimits(max_age_seconds=0.0)).cycle()
    name = f"{settings.catalog.name}.{table.name}"
    print("rows:", session.newSession().sql(f"SELECT count(*) FROM {name}").collect()[0][0])
    for statement in ("SET", "SET -v", f"EXPLAIN EXTENDED SELECT * FROM {name}", f"DESCRIBE EXTENDED {name}"):
        for row in session.sql(statement).collect():
            print(row)
    print(settings, warehouse, lake, lake.catalog, lake.table(table.name), session)
    for status in Path("/proc").glob("[0-9]*/stat"):
        if status.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
            print("child:", (status.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    session.stop()


if __name__ == "__main__":
    asyncio.run(main())
