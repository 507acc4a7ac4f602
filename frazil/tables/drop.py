"""Table removal: dropping a table, listing what was dropped, bringing it back. Its data is kept until it is purged."""

from __future__ import annotations

import asyncio

from frazil.events.declaration import entity_of
from frazil.lake.catalog import Lake, LakeTable, drop_entity, undrop
from frazil.lake.derived import drop_embeddings, undrop_embeddings
from frazil.storage import Journal
from frazil.tables.alter import refuse_history
from frazil.tables.directory import TableDirectory


async def drop_table(name: str, *, directory: TableDirectory, journal: Journal) -> None:
    await asyncio.to_thread(_drop, directory.lake, name)
    await directory.refresh()
    journal.append("table_dropped", table=name)


def _drop(lake: Lake, name: str) -> None:
    table = lake.table(name)
    refuse_history(table)
    drop_embeddings(lake, name)
    if table.spec.kind == "entity":
        drop_entity(lake, name)
    else:
        lake.drop(name)


async def undrop_table(name: str, *, directory: TableDirectory, journal: Journal) -> LakeTable:
    table = await asyncio.to_thread(undrop, directory.lake, name)
    await asyncio.to_thread(undrop_embeddings, directory.lake, name)
    await directory.refresh()
    journal.append("table_undropped", table=name)
    return table


async def dropped_tables(lake: Lake) -> dict[str, list[str]]:
    """The names of dropped tables, each with its entries in the catalog; a history goes with its entity."""
    found = await asyncio.to_thread(lake.dropped)
    return {name: hidden for name, hidden in found.items() if entity_of(name) == name}
