"""Where the rows of a table come from: its lineage and its loads, in describe and at GET /v1/tables/{table}/loads"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from frazil.access import Forbidden
from frazil.events import start_of
from frazil.gateway.http.answers import answer
from frazil.gateway.http.gateway import Gateway
from frazil.gateway.http.parameters import only, table_of, whole_number
from frazil.gateway.http.scopes import identity_of, no_such_table
from frazil.lake import LakeTable, LoadRecord, Registry, lineage, load_records

_LOADS_TOLD = 20
_MOST_LOADS = 10_000


class Loads:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, request: Request) -> Response:
        """The newest loads of a table, for who may read all of its rows."""
        only(request, "limit")
        name = table_of(request)
        grant = identity_of(request).read_grant(name)
        if grant is None:
            raise no_such_table(name)
        if grant.filters:
            raise Forbidden("this is for who may read all rows of the table", hint="ask whoever gave you the token")
        limit = whole_number(request, "limit", default=100, most=_MOST_LOADS)
        await self._gateway.directory.refresh()
        table = await self._gateway.directory.table(name)
        records = await asyncio.to_thread(_newest_first, self._gateway.lake.registry, table)
        told = [_brief(record, table) for record in records[:limit]]
        return answer({"table": table.spec.short_name, "loads": told})


def provenance(registry: Registry, table: LakeTable) -> dict[str, Any]:
    """`lineage`: every source with its job, the latest first. `loads`: the newest ones."""
    records = _newest_first(registry, table)
    found = lineage(records[::-1])
    if events := _of_events(table, {*table.loads, *(record.id for record in records)}):
        found.append(events)
    return {
        "lineage": sorted(found, key=lambda entry: str(entry["last_loaded_at"] or ""), reverse=True),
        "loads": [_brief(record, table) for record in records[:_LOADS_TOLD]],
    }


def last_loaded_at(table: LakeTable) -> datetime | None:
    """When rows last came into the table. What maintenance did since is marked by nobody."""
    return next((known.committed_at for known in table.snapshots() if known.watermark is not None), None)


def is_only_loaded(table: LakeTable, watermark: int | None) -> bool:
    """Whether loads alone have written to it so far."""
    if not table.spec.is_streamed:
        return True
    return table.spec.kind == "log" and watermark == start_of(1) and table.snapshot_id is not None


def age_of_load(table: LakeTable) -> float | None:
    loaded_at = last_loaded_at(table)
    return None if loaded_at is None else round(max(0.0, (datetime.now(UTC) - loaded_at).total_seconds()), 3)


def _newest_first(registry: Registry, table: LakeTable) -> list[LoadRecord]:
    return sorted(load_records(registry, table.uuid), key=lambda record: record.began_at, reverse=True)


def _of_events(table: LakeTable, loads: set[str]) -> dict[str, Any] | None:
    """The entry for what was published to the table's stream, if anything was committed from there."""
    if not table.spec.is_streamed or int(table.properties.get("frazil.watermark") or 0) <= start_of(1):
        return None
    commits = [known for known in table.snapshots() if known.watermark is not None and known.batch not in loads]
    newest = commits[0].committed_at.isoformat() if commits else None
    return {"source": "events", "job": "commit", "last_loaded_at": newest}


def _brief(record: LoadRecord, table: LakeTable) -> dict[str, Any]:
    done = record.done_at is not None or record.id in table.loads
    seconds = (record.done_at - record.began_at).total_seconds() if record.done_at else None
    return {
        "id": record.id,
        "state": "done" if done else "unfinished",
        "source": record.source,
        "job": record.job,
        "rows": record.rows,
        "files": len(record.files),
        "began_at": record.began_at.isoformat(),
        "done_at": record.done_at.isoformat() if record.done_at else None,
        "seconds": seconds if seconds is None else round(seconds, 3),
        "snapshot_id": record.snapshot_id,
    }
