"""Row history: the snapshots of a table, the versions of one row, and the changes between two snapshots.

Rows are read by SQL through the same walls and grants as any other query. What is put into its text is a table's name,
which is plain by rule (`events.table_name`), and whole numbers.
"""
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from frazil.access import Identity, ReadGrant
from frazil.errors import InvalidInput, NotFound
from frazil.events import Token
from frazil.events.declaration import history_of
from frazil.gateway.query.queries import Queries
from frazil.lake.catalog import LakeTable, SnapshotInfo, snapshot_by_id, snapshot_with, watermark_at
from frazil.requests import QueryRequest
from frazil.tables import TableDirectory

MAX_CHANGES = 10_000


async def snapshots_of(directory: TableDirectory, name: str, *, grant: ReadGrant, limit: int) -> dict[str, Any]:
    """The snapshots that led to the current state, newest first; their rows are counted for who may see all of them."""
    await directory.refresh()
    table = await directory.table(name)
    fed = await directory.fed(name)
    snapshots = [_snapshot(table, fed, snapshot, counted=not grant.filters) for snapshot in table.snapshots()[:limit]]
    return {"table": table.spec.short_name, "snapshots": snapshots}


class History:
    def __init__(self, directory: TableDirectory, queries: Queries) -> None:
        self._directory = directory
        self._queries = queries

    async def row(self, name: str, row_id: str, identity: Identity) -> dict[str, Any]:
        """Every event of this id, oldest first, with the snapshot that made it visible; null while it is live only."""
        fed = await self._directory.fed(name)
        request = QueryRequest(
            sql=f"SELECT * FROM {_quoted(fed.name)} WHERE _id = $1 ORDER BY _seq", parameters=[row_id]
        )
        short = name.removeprefix("main.")
        found = await self._versions(
            fed, request, identity, f"{short!r} has no row with this id", "ids are those of events"
        )
        return {"table": short, "id": row_id, **found}

    async def of_key(self, name: str, key: Mapping[str, str], identity: Identity) -> dict[str, Any]:
        """Every event of the entity with this key, oldest first, also those that did not apply."""
        fed = await self._directory.fed(name)
        short = name.removeprefix("main.")
        if fed.spec.kind != "history":
            raise InvalidInput(f"{short!r} has no key", code="no_key", hint="give the id of an event instead")
        if set(key) != set(fed.spec.key):
            raise InvalidInput(
                f"the key of {short!r} is {', '.join(fed.spec.key)}",
                code="bad_key",
                hint="give each of them once: " + "&".join(f"key={column}=…" for column in fed.spec.key),
            )
        condition = " AND ".join(f'"{column}" = ${at}' for at, column in enumerate(fed.spec.key, 1))
        request = QueryRequest(
            sql=f"SELECT * FROM {_quoted(fed.name)} WHERE {condition} ORDER BY _seq",
            parameters=[key[column] for column in fed.spec.key],
        )
        hint = f"`SELECT * FROM {short}` has those that are there"
        found = await self._versions(fed, request, identity, f"{short!r} has no event of this key", hint)
        return {"table": short, "key": dict(key), **found}

    async def _versions(
        self, fed: LakeTable, request: QueryRequest, identity: Identity, none: str, hint: str
    ) -> dict[str, Any]:
        answer = await self._queries.answer(request, identity)
        table = await self._directory.table(fed.name)
        names = [column["name"] for column in answer.columns]
        versions = []
        for values in msgspec.json.decode(answer.body):
            row = dict(zip(names, values, strict=True))
            committed = snapshot_with(table, row["_seq"])
            versions.append(
                {
                    "row": row,
                    "position": row["_seq"],
                    "committed_in": committed.snapshot_id if committed else None,
                    "committed_at": committed.committed_at.isoformat() if committed else None,
                }
            )
        if not versions:
            raise NotFound(none, code="row_not_found", hint=hint)
        return {"versions": versions, "token": answer.about["token"]}

    async def changes(
        self, name: str, first: int, second: int | None, identity: Identity, *, limit: int
    ) -> dict[str, Any]:
        """The rows that one of the two snapshots has and the other has not."""
        await self._directory.refresh()
        table = await self._directory.table(name)
        if second is None:
            second = table.snapshot_id
        if second is None:
            raise NotFound(f"{table.spec.short_name!r} has no snapshot yet", code="snapshot_not_found")
        for snapshot_id in (first, second):
            snapshot_by_id(table, snapshot_id)
        if table.spec.kind == "entity":
            return await self._folded_between(table, first, second, identity, limit=limit)
        table_, before, after = _quoted(name), f"AT (VERSION => {first})", f"AT (VERSION => {second})"
        changed = (
            f"SELECT 'added' AS _change, b.* FROM {table_} b {after} ANTI JOIN {table_} a {before} ON a._seq = b._seq "
            "UNION ALL BY NAME "
            f"SELECT 'removed' AS _change, a.* FROM {table_} a {before} ANTI JOIN {table_} b {after} ON a._seq = b._seq"
        )
        return await self._changed(table, first, second, changed, identity, limit=limit)

    async def _folded_between(
        self, base: LakeTable, first: int, second: int, identity: Identity, *, limit: int
    ) -> dict[str, Any]:
        """The events that made the later state of an entity out of the earlier one."""
        start, end = (watermark_at(base, snapshot_id) for snapshot_id in (first, second))
        if start is None or end is None:
            raise NotFound(
                f"it is not known any more which events {base.spec.short_name!r} had at this snapshot",
                code="snapshot_not_found",
                hint="choose a later one",
            )
        history = _quoted(history_of(base.name))
        changed = f"SELECT 'added' AS _change, * FROM {history} WHERE _seq >= {start} AND _seq < {end}"
        return await self._changed(base, first, second, changed, identity, limit=limit)

    async def _changed(
        self, table: LakeTable, first: int, second: int, changed: str, identity: Identity, *, limit: int
    ) -> dict[str, Any]:
        counted = await self._queries.answer(
            QueryRequest(sql=f"SELECT _change, count(*) FROM ({changed}) GROUP BY 1", freshness="committed"),
            identity,
        )
        counts: dict[str, int] = dict(msgspec.json.decode(counted.body))
        listed = await self._queries.answer(
            QueryRequest(sql=f"SELECT * FROM ({changed}) ORDER BY _seq", freshness="committed", max_rows=limit),
            identity,
        )
        names = [column["name"] for column in listed.columns]
        rows = [dict(zip(names, values, strict=True)) for values in msgspec.json.decode(listed.body)]
        return {
            "table": table.spec.short_name,
            "from": first,
            "to": second,
            "added": counts.get("added", 0),
            "removed": counts.get("removed", 0),
            "rows": [{"change": row.pop("_change"), "row": row} for row in rows],
            "truncated": listed.about["truncated"],
        }


def _quoted(name: str) -> str:
    schema, _, short = name.partition(".")
    return f'"{schema}"."{short}"'


def _snapshot(table: LakeTable, fed: LakeTable, snapshot: SnapshotInfo, *, counted: bool) -> dict[str, Any]:
    watermark = snapshot.watermark
    token = None if watermark is None else str(Token.of(fed.token_name, fed.stream_identity, watermark - 1))
    return {
        "snapshot_id": snapshot.snapshot_id,
        "parent_id": snapshot.parent_id,
        "committed_at": snapshot.committed_at.isoformat(),
        "age_seconds": round((datetime.now(UTC) - snapshot.committed_at).total_seconds(), 3),
        "operation": snapshot.operation,
        "added_rows": snapshot.added_rows if counted else None,
        "total_rows": snapshot.total_rows if counted else None,
        "watermark": token,
        "batch": snapshot.batch,
        "current": snapshot.snapshot_id == table.snapshot_id,
    }
