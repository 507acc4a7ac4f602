"""Making a table: the stream on the bus and the table in the catalog as one."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from frazil.bus import EventBus
from frazil.crash import crash_point
from frazil.errors import Conflict

if TYPE_CHECKING:
    from frazil.events import TableSpec
    from frazil.lake import Lake, LakeTable


async def make_table(bus: EventBus, lake: Lake, spec: TableSpec) -> LakeTable:
    """The new table, fed from a new stream where it takes events; a name that is taken is a `Conflict`.

    The stream comes first: a table without a stream could lose events, a stream without a table is only empty.
    """
    if not spec.is_streamed:
        return await asyncio.to_thread(lake.create_bulk, spec)
    stream = await bus.create(f"{spec.name}.{uuid.uuid4().hex}")
    crash_point("after_stream_create_before_table_create")
    try:
        return await asyncio.to_thread(lake.create, spec, stream=stream.name, identity=stream.identity)
    except Conflict:
        await bus.delete(stream.name)
        raise
