"""Table creation: the stream on the bus and the table in the catalog as one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from frazil.bus import EventBus
from frazil.crash import crash_point
from frazil.errors import Conflict, NotFound
from frazil.events.declaration import TableSpec, check_declarable, parse_table
from frazil.lake.catalog import (
    Lake,
    LakeTable,
    complete_entity,
    drop_entity,
    finish_declaring,
    load_entity,
    same_declaration,
)
from frazil.storage import Journal
from frazil.tables.directory import TableDirectory


async def create_table(bus: EventBus, lake: Lake, spec: TableSpec, *, location: str | None = None) -> LakeTable:
    """The new table, fed from a new stream where it takes events; of an entity its base. A name that is taken is a
    `Conflict`; a declaration of the same that broke off is finished. `location` is for a log table: the folder that its
    files were drafted in.

    The stream comes first: a table without a stream could lose events, a stream without a table is only empty.
    """
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


async def declare_table(
    declared: Mapping[str, Any], *, bus: EventBus, directory: TableDirectory, journal: Journal
) -> tuple[LakeTable, bool]:
    """The table of this declaration, and whether it was created now. One that exists and differs is a `Conflict`."""
    spec = parse_table(declared)
    check_declarable(spec)
    lake = directory.lake
    if (existing := await _existing(lake, spec)) is not None:
        return existing, False
    try:
        table = await create_table(bus, lake, spec)
    except Conflict:
        if (existing := await _existing(lake, spec)) is None:
            raise
        return existing, False
    await directory.refresh()
    journal.append("table_declared", table=spec.name, **await asyncio.to_thread(_stream_entry, lake, table))
    return table, True


def _stream_entry(lake: Lake, table: LakeTable) -> dict[str, str]:
    """The stream, for the journal: an entity's is its history's; a table that only loads write to has none."""
    if not table.spec.is_streamed:
        return {}
    fed = load_entity(lake, table.name).history if table.spec.kind == "entity" else table
    return {"stream": fed.stream}


async def _existing(lake: Lake, wanted: TableSpec) -> LakeTable | None:
    """The table of this name, if it is declared alike; a `Conflict` if it is not."""
    try:
        table, spec = await asyncio.to_thread(_load, lake, wanted.name)
    except NotFound as error:
        if error.code == "history_missing":
            await asyncio.to_thread(drop_entity, lake, wanted.name)
        elif error.code != "table_not_found":
            raise
        return None
    _check_same(spec, wanted)
    return table


def _load(lake: Lake, name: str) -> tuple[LakeTable, TableSpec]:
    table = lake.table(name)
    return table, load_entity(lake, name).spec if table.spec.kind == "entity" else table.spec


def _check_same(existing: TableSpec, wanted: TableSpec) -> None:
    if same_declaration(existing, wanted):
        return
    raise Conflict(
        f"table {wanted.short_name!r} exists already and is different",
        code="table_exists",
        hint="declare it as it is, alter it (PATCH /v1/tables/{name}), or drop it first",
        details=_differences(existing.declared(), wanted.declared()),
    )


def _differences(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ, and of the columns the names."""
    found: dict[str, Any] = {}
    for field in existing:
        if field == "columns":
            continue
        if existing[field] != wanted.get(field):
            found[field] = {"existing": existing[field], "declared": wanted.get(field)}
    have, want = existing["columns"], wanted["columns"]
    for column in sorted(have.keys() | want.keys()):
        if have.get(column) != want.get(column):
            found[f"columns.{column}"] = {"existing": have.get(column), "declared": want.get(column)}
    return found
