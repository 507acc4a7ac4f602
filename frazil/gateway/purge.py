"""Purge of dropped tables: the stream on the bus, artifacts, files, the row of the catalog, in this order."""

from __future__ import annotations

import asyncio
from typing import Any

from frazil.bus import EventBus
from frazil.crash import crash_point
from frazil.lake.bulk import forget_loads
from frazil.lake.catalog import Lake, begin_purge, plan_purge, purge_files
from frazil.serving.artifacts import clear_shelves
from frazil.storage import Journal


async def purge_dropped(name: str, *, bus: EventBus, lake: Lake, journal: Journal, dry_run: bool) -> dict[str, Any]:
    """Purge every dropped table of this name; with `dry_run` only report what would go. After a kill, do it again."""
    planned = await asyncio.to_thread(plan_purge, lake, name)
    report = {"table": name.removeprefix("main."), "tables": [one.body() for one in planned]}
    if dry_run:
        return {**report, "purged": False}
    for entry in planned:
        one = await asyncio.to_thread(begin_purge, lake, entry)
        if one.stream is not None:
            # While the metadata is there to name it: a stream that nobody names would stay for ever.
            await bus.delete(one.stream)
        crash_point("after_purge_of_stream")
        if one.uuid is not None:
            await asyncio.to_thread(forget_loads, lake.registry, one.uuid)
            await asyncio.to_thread(clear_shelves, lake, name, one.uuid)
            crash_point("after_purge_of_artifacts")
        deleted = await asyncio.to_thread(purge_files, lake, one)
        journal.append("table_purged", table=name, hidden=one.hidden, files=deleted, stream=one.stream)
    return {**report, "purged": True}
