"""Declaring, altering, dropping and bringing back tables: the stream on the bus and the table in the catalog as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from frazil.bus import EventBus
from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events.declaration import TableSpec, check_declarable, entity_of, parse_table
from frazil.gateway.ingest.directory import TableDirectory
from frazil.lake.catalog import Lake, LakeTable, changed_by, drop_entity, load_entity, same_declaration, undrop
from frazil.lake.derived import drop_embeddings, undrop_embeddings
from frazil.runtime.declare import make_table
from frazil.storage import Journal

_WORDS = ("description", "owner", "tags", "freshness_target_seconds", "retention_years")
_SEARCHED = ("text", "search")
_CHANGES = ("add_columns", "widen", *_WORDS, *_SEARCHED)


class Declarations:
    def __init__(self, *, bus: EventBus, lake: Lake, directory: TableDirectory, journal: Journal) -> None:
        self._bus = bus
        self._lake = lake
        self._directory = directory
        self._journal = journal

    async def declare(self, declared: Any) -> tuple[LakeTable, bool]:
        """Make the table, or find that it is there already; the second half says whether it was made now."""
        spec = parse_table(declared)
        check_declarable(spec)
        existing = await self._existing(spec)
        if existing is not None:
            return existing, False
        try:
            table = await make_table(self._bus, self._lake, spec)
        except Conflict:
            existing = await self._existing(spec)
            if existing is None:
                raise
            return existing, False
        await self._directory.refresh()
        self._journal.append("table_declared", table=spec.name, **await asyncio.to_thread(self._fed_from, table))
        return table, True

    def _fed_from(self, table: LakeTable) -> dict[str, str]:
        """The stream, for the journal: an entity's is its history's; a table that only loads write to has none."""
        if not table.spec.is_streamed:
            return {}
        fed = load_entity(self._lake, table.name).history if table.spec.kind == "entity" else table
        return {"stream": fed.stream}

    async def _existing(self, wanted: TableSpec) -> LakeTable | None:
        """The table of this name, if it is declared alike; a `Conflict` if it is not."""
        try:
            table, spec = await asyncio.to_thread(self._load, wanted.name)
        except NotFound as error:
            if error.code == "history_missing":
                await asyncio.to_thread(drop_entity, self._lake, wanted.name)
            elif error.code != "table_not_found":
                raise
            return None
        _same_or_conflict(spec, wanted)
        return table

    def _load(self, name: str) -> tuple[LakeTable, TableSpec]:
        table = self._lake.table(name)
        return table, load_entity(self._lake, name).spec if table.spec.kind == "entity" else table.spec

    async def alter(self, name: str, request: Any) -> LakeTable:
        """Add columns, widen types, change words and how it is searched; all of it or nothing."""
        if not isinstance(request, dict) or not request:
            raise InvalidInput("an alteration is an object", code="bad_alteration", hint=f"with {', '.join(_CHANGES)}")
        for field in request:
            if field not in _CHANGES:
                raise InvalidInput(
                    f"{str(field)[:80]!r} cannot be altered", code="unknown_field", hint=f"only {', '.join(_CHANGES)}"
                )
        change = changed_by({**request, **_words(request)})
        before = await self._directory.table(name)
        _writable(before)
        if any(field in request for field in _SEARCHED):
            change = _searched(change, request, self._directory.spec_of(before))
        table = await self._directory.alter(name, change)
        if table.metadata_location != before.metadata_location:
            self._journal.append("table_altered", table=name, changes=sorted(request))
        return table

    async def drop(self, name: str) -> None:
        await asyncio.to_thread(self._drop, name)
        await self._directory.refresh()
        self._journal.append("table_dropped", table=name)

    def _drop(self, name: str) -> None:
        table = self._lake.table(name)
        _writable(table)
        drop_embeddings(self._lake, name)
        if table.spec.kind == "entity":
            drop_entity(self._lake, name)
        else:
            self._lake.drop(name)

    async def undrop(self, name: str) -> LakeTable:
        table = await asyncio.to_thread(undrop, self._lake, name)
        await asyncio.to_thread(undrop_embeddings, self._lake, name)
        await self._directory.refresh()
        self._journal.append("table_undropped", table=name)
        return table

    async def dropped(self) -> dict[str, list[str]]:
        found = await asyncio.to_thread(self._lake.dropped)
        return {name: hidden for name, hidden in found.items() if entity_of(name) == name}


def _words(request: Mapping[str, Any]) -> dict[str, Any]:
    """The words of an alteration, checked and put right by the rules of a declaration; a null takes the word away."""
    for field in ("add_columns", "widen"):
        if not isinstance(request.get(field) or {}, dict):
            raise InvalidInput(
                f"`{field}` is an object of name and type", code="bad_columns", hint='{"amount": "long"}'
            )
    words = {field: request[field] for field in _WORDS if field in request}
    parsed = parse_table({"name": "a", "columns": {}, **words})
    return {field: getattr(parsed, field) for field in words}


def _searched(
    change: Callable[[TableSpec], TableSpec], request: Mapping[str, Any], spec: TableSpec
) -> Callable[[TableSpec], TableSpec]:
    """The change, and with it another way to search the table: judged like a declaration of all of it."""
    given = {field: request[field] for field in _SEARCHED if field in request}
    wanted = parse_table({**change(spec).declared(), **given})
    check_declarable(wanted)
    return lambda current: replace(change(current), text=wanted.text, search=wanted.search)


def _writable(table: LakeTable) -> None:
    if table.spec.kind == "history":
        short = table.token_name.removeprefix("main.")
        raise Conflict(
            f"{table.spec.short_name!r} is the history of {short!r}", code="is_a_history", hint=f"do it to {short!r}"
        )


def _same_or_conflict(existing: TableSpec, wanted: TableSpec) -> None:
    if same_declaration(existing, wanted):
        return
    raise Conflict(
        f"table {wanted.short_name!r} exists already and is different",
        code="table_exists",
        hint="declare it as it is, alter it (PATCH /v1/tables/{name}), or drop it first",
        details=_differences(existing.declared(), wanted.declared()),
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
