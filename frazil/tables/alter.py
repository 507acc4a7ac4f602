"""Table alteration: columns, types, description and policies, and the declaration of search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from frazil.errors import Conflict
from frazil.events.declaration import TableSpec, check_declarable, parse_table
from frazil.lake.catalog import LakeTable, changed_by
from frazil.storage import Journal
from frazil.tables.directory import TableDirectory

_FIELDS = ("description", "owner", "tags", "freshness_target_seconds", "retention_years")
_SEARCHED = ("text", "search")


async def alter_table(
    name: str, request: Mapping[str, Any], *, directory: TableDirectory, journal: Journal
) -> LakeTable:
    """Add columns, widen types, change the other declared fields; all of it or nothing.

    `request` has the fields of `frazil.requests.AlterTableRequest` that were given.
    """
    change = changed_by({**request, **_fields(request)})
    before = await directory.table(name)
    refuse_history(before)
    if any(field in request for field in _SEARCHED):
        change = _searched(change, request, directory.spec_of(before))
    table = await directory.alter(name, change)
    if table.metadata_location != before.metadata_location:
        journal.append("table_altered", table=name, changes=sorted(request))
    return table


def refuse_history(table: LakeTable) -> None:
    """Raise `Conflict` for the history of an entity: what is done to the entity is done to it."""
    if table.spec.kind == "history":
        short = table.token_name.removeprefix("main.")
        raise Conflict(
            f"{table.spec.short_name!r} is the history of {short!r}", code="is_a_history", hint=f"do it to {short!r}"
        )


def _fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields beside the columns, checked and normalised as in a declaration; null removes a field."""
    given = {field: request[field] for field in _FIELDS if field in request}
    parsed = parse_table({"name": "a", "columns": {}, **given})
    return {field: getattr(parsed, field) for field in given}


def _searched(
    change: Callable[[TableSpec], TableSpec], request: Mapping[str, Any], spec: TableSpec
) -> Callable[[TableSpec], TableSpec]:
    """The change, and with it another way to search the table: judged like a declaration of all of it."""
    given = {field: request[field] for field in _SEARCHED if field in request}
    wanted = parse_table({**change(spec).declared(), **given})
    check_declarable(wanted)
    return lambda current: replace(change(current), text=wanted.text, search=wanted.search)
