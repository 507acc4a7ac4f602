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


async def make_table(bus: EventBus, lake: Lake, spec: TableSpec, *, location: str | None = None) -> LakeTable:
    """The new table, fed from a new stream where it takes events; of an entity its base. A name that is taken is a
    `Conflict`; a declaration of the same that broke off is finished. `location` is for a log table: the folder that its
    files were drafted in.

    The stream comes first: a table without a stream could lose events, a stream without a table is only empty.
    """
    from frazil.lake import finish_declaring

    if not spec.is_streamed:
        return await asyncio.to_thread(lake.create_bulk, spec)
    if (finished := await asyncio.to_thread(finish_declaring, lake, spec)) is not None:
        return finished.base
    stream = await bus.create(f"{spec.name}.{uuid.uuid4().hex}")
    crash_point("after_stream_create_before_table_create")
    try:
        return await asyncio.to_thread(_created, lake, spec, stream.name, stream.identity, location)
    except Conflict:
        await bus.delete(stream.name)
        raise


def _created(lake: Lake, spec: TableSpec, stream: str, identity: str, location: str | None) -> LakeTable:
    from frazil.lake import create_entity

    if spec.kind == "entity":
        return create_entity(lake, spec, stream=stream, identity=identity).base
    return lake.create(spec, stream=stream, identity=identity, location=location)
