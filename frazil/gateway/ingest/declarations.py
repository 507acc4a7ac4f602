"""Declaring, altering, dropping and bringing back tables: the stream on the bus and the table in the catalog as one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from frazil.bus import EventBus
from frazil.crash import crash_point
from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events import SYSTEM_NAMESPACE, TableSpec, parse_table
from frazil.gateway.ingest.directory import TableDirectory
from frazil.lake import Lake, LakeTable, changed_by, same_declaration
from frazil.storage import Journal

_CHANGES = ("add_columns", "widen", "description", "owner", "tags", "freshness_target_seconds", "retention_years")


class Declarations:
    def __init__(self, *, bus: EventBus, lake: Lake, directory: TableDirectory, journal: Journal) -> None:
        self._bus = bus
        self._lake = lake
        self._directory = directory
        self._journal = journal

    async def declare(self, declared: Any) -> tuple[LakeTable, bool]:
        """Make the table, or find that it is there already; the second half says whether it was made now.

        The stream comes first: a table without a stream could lose events, a stream without a table is only empty.
        """
        spec = parse_table(declared)
        if spec.namespace == SYSTEM_NAMESPACE:
            raise InvalidInput(
                f"the namespace {SYSTEM_NAMESPACE!r} is frazil's own", code="reserved_namespace", hint="choose another"
            )
        existing = await self._existing(spec.name)
        if existing is not None:
            return _same_or_conflict(existing, spec), False
        if not spec.is_streamed:
            table = await asyncio.to_thread(self._lake.create_bulk, spec)
            await self._directory.refresh()
            self._journal.append("table_declared", table=spec.name)
            return table, True
        stream = await self._bus.create(f"{spec.name}.{uuid.uuid4().hex}")
        crash_point("after_stream_create_before_table_create")
        try:
            table = await asyncio.to_thread(self._lake.create, spec, stream=stream.name, identity=stream.identity)
        except Conflict:
            await self._bus.delete(stream.name)
            existing = await self._existing(spec.name)
            if existing is None:
                raise
            return _same_or_conflict(existing, spec), False
        await self._directory.refresh()
        self._journal.append("table_declared", table=spec.name, stream=stream.name)
        return table, True

    async def _existing(self, name: str) -> LakeTable | None:
        try:
            return await asyncio.to_thread(self._lake.table, name)
        except NotFound as error:
            if error.code == "table_not_found":
                return None
            raise

    async def alter(self, name: str, request: Any) -> LakeTable:
        """Add columns, widen types, change words; all of it or nothing."""
        if not isinstance(request, dict) or not request:
            raise InvalidInput("an alteration is an object", code="bad_alteration", hint=f"with {', '.join(_CHANGES)}")
        for field in request:
            if field not in _CHANGES:
                raise InvalidInput(
                    f"{str(field)[:80]!r} cannot be altered", code="unknown_field", hint=f"only {', '.join(_CHANGES)}"
                )
        change = changed_by({**request, **_words(request)})
        before = await self._directory.table(name)
        table = await self._directory.alter(name, change)
        if table.metadata_location != before.metadata_location:
            self._journal.append("table_altered", table=name, changes=sorted(request))
        return table

    async def drop(self, name: str) -> None:
        await asyncio.to_thread(self._lake.drop, name)
        await self._directory.refresh()
        self._journal.append("table_dropped", table=name)

    async def undrop(self, name: str) -> LakeTable:
        table = await asyncio.to_thread(self._lake.undrop, name)
        await self._directory.refresh()
        self._journal.append("table_undropped", table=name)
        return table

    async def dropped(self) -> dict[str, list[str]]:
        return await asyncio.to_thread(self._lake.dropped)


def _words(request: Mapping[str, Any]) -> dict[str, Any]:
    """The words of an alteration, checked and put right by the rules of a declaration; a null takes the word away."""
    for field in ("add_columns", "widen"):
        if not isinstance(request.get(field) or {}, dict):
            raise InvalidInput(
                f"`{field}` is an object of name and type", code="bad_columns", hint='{"amount": "long"}'
            )
    words = {field: request[field] for field in _CHANGES[2:] if field in request}
    parsed = parse_table({"name": "a", "columns": {}, **words})
    return {field: getattr(parsed, field) for field in words}


def _same_or_conflict(existing: LakeTable, wanted: TableSpec) -> LakeTable:
    if same_declaration(existing.spec, wanted):
        return existing
    raise Conflict(
        f"table {wanted.short_name!r} exists already and is different",
        code="table_exists",
        hint="declare it as it is, alter it (PATCH /v1/tables/{name}), or drop it first",
        details=_differences(existing.spec.declared(), wanted.declared()),
    )


def _differences(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What differs, field by field, and for columns name by name."""
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
