"""Making a table: the stream on the bus and the table in the catalog as one."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from frazil.bus import EventBus
from frazil.crash import crash_point
from frazil.errors import Conflict

if TYPE_CHECKING:
    from frazil.events.declaration import TableSpec
    from frazil.lake.catalog import Lake, LakeTable


async def make_table(bus: EventBus, lake: Lake, spec: TableSpec, *, location: str | None = None) -> LakeTable:
    """The new table, fed from a new stream where it takes events; of an entity its base. A name that is taken is a
    `Conflict`; a declaration of the same that broke off is finished. `location` is for a log table: the folder that its
    files were drafted in.

    The stream comes first: a table without a stream could lose events, a stream without a table is only empty.
    """
    from frazil.lake.catalog import complete_entity, finish_declaring

    if not spec.is_streamed:
        return await asyncio.to_thread(lake.create_bulk, spec)
    if (finished := await asyncio.to_thread(finish_declaring, lake, spec)) is not None:
        return finished.base
    stream = await bus.create(f"{spec.name}.{uuid.uuid4().hex}")
    crash_point("after_stream_create_before_table_create")
    fed = spec.history() if spec.kind == "entity" else spec
    try:
        table = await asyncio.to_thread(
            lake.create, fed, stream=stream.name, identity=stream.identity, location=location
        )
    except Conflict:
        await bus.delete(stream.name)  # no table is fed from it
        raise
    if spec.kind != "entity":
        return table
    return (await asyncio.to_thread(complete_entity, lake, spec, table)).base
