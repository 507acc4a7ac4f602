"""Table status: the declaration of a table, its lag behind its stream, its freshness and its snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frazil.errors import FrazilError
from frazil.events import Token, first_position, sequence_of
from frazil.events.declaration import history_of
from frazil.lake.catalog import LakeTable
from frazil.tables.directory import TableDirectory
from frazil.tables.lineage import is_only_loaded, load_age_seconds, table_lineage
from frazil.tables.stream import TableStream

_PATIENCE_SECONDS = 1.0
_MOST_SNAPSHOTS = 20


@dataclass(frozen=True)
class StreamLag:
    """The part of a stream that its table has not committed yet."""

    watermark: int | None
    head: int | None
    """The last sequence on the bus."""
    lag_events: int | None
    lag_seconds: float | None
    error: dict[str, Any] | None


class TableStatus:
    """`stream_of` gives the stream that feeds a table."""

    def __init__(self, directory: TableDirectory, stream_of: Callable[[LakeTable], TableStream]) -> None:
        self._directory = directory
        self._stream_of = stream_of

    def declared(self, table: LakeTable) -> dict[str, Any]:
        """The declaration, and of an entity the name of its history."""
        declared = self._directory.spec_of(table).declared()
        return declared | ({"history": history_of(table.spec.short_name)} if table.spec.kind == "entity" else {})

    async def standing(self, table: LakeTable) -> StreamLag:
        """The lag of the table. What cannot be known is None, with the reason in `error`."""
        try:
            table = await self._directory.fed(table.name)
            watermark = table.watermark
        except FrazilError as error:
            return StreamLag(None, None, None, None, error.body()["error"])
        if not table.spec.is_streamed:
            return StreamLag(watermark, None, 0, 0.0, None)
        stream = self._stream_of(table)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                head = await stream.head()
                if head < sequence_of(watermark):
                    return StreamLag(watermark, head, 0, 0.0, None)
                backlog = await stream.backlog(watermark, patience_seconds=_PATIENCE_SECONDS / 2)
        except TimeoutError:
            return StreamLag(
                watermark, None, None, None, {"code": "bus_unavailable", "message": "no answer", "hint": ""}
            )
        except FrazilError as error:
            return StreamLag(watermark, None, None, None, error.body()["error"])
        if backlog is None:
            return StreamLag(watermark, head, None, None, None)
        oldest = backlog.oldest_received_us
        age = max(0.0, datetime.now(UTC).timestamp() - oldest / 1e6) if oldest is not None else 0.0
        return StreamLag(watermark, head, backlog.events, round(age, 3), None)

    async def status(self, table: LakeTable) -> dict[str, Any]:
        """The line of a table in GET /v1/status."""
        standing = await self.standing(table)
        fed, of_entity = table, {}
        if table.spec.kind == "entity" and standing.watermark is not None:
            entity = await self._directory.entity(table)
            fed = entity.history
            of_entity = {"history_snapshot_id": fed.snapshot_id, "unfolded": entity.unfolded_rows}
        status: dict[str, Any] = {
            "rows": table.rows,
            "snapshot_id": table.snapshot_id,
            **of_entity,
            "head_token": _token(fed, first_position(standing.head + 1)) if standing.head is not None else None,
            "watermark_token": _token(fed, standing.watermark) if standing.watermark is not None else None,
            "lag": {"events": standing.lag_events, "seconds": standing.lag_seconds},
            "last_commit_at": fed.last_commit_at.isoformat() if fed.last_commit_at else None,
            "freshness": _freshness(table, standing),
        }
        if standing.error is not None:
            status["error"] = standing.error
        return status

    async def describe(self, table: LakeTable) -> dict[str, Any]:
        """Everything that GET /v1/tables/{name} shows to who may read all of the table."""
        spec = self._directory.spec_of(table)
        fed = await self._directory.fed(table.name)
        return {
            **self.declared(table),
            "declaration": spec.declared(),
            "schema": [{"name": field.name, "type": str(field.type)} for field in spec.row_schema()],
            "metadata_location": table.metadata_location,
            "uuid": table.uuid,
            "stream": fed.stream,
            "files": table.files,
            "bytes": table.bytes,
            **await self.status(table),
            **await asyncio.to_thread(table_lineage, self._directory.lake.registry, table),
            "snapshots": [
                {
                    "snapshot_id": snapshot.snapshot_id,
                    "parent_id": snapshot.parent_id,
                    "committed_at": snapshot.committed_at.isoformat(),
                    "operation": snapshot.operation,
                    "added_rows": snapshot.added_rows,
                    "total_rows": snapshot.total_rows,
                    "watermark_token": None if snapshot.watermark is None else _token(fed, snapshot.watermark),
                    "batch": snapshot.batch,
                }
                for snapshot in table.snapshots()[:_MOST_SNAPSHOTS]
            ],
        }


def _token(table: LakeTable, watermark: int) -> str:
    """The token that is reached at this watermark."""
    return str(Token.of(table.token_name, table.stream_identity, watermark - 1))


def _freshness(table: LakeTable, standing: StreamLag) -> dict[str, Any]:
    """The age of what a reader sees: the lag, or the time since the last load of a table that only loads write to."""
    target = table.spec.freshness_target_seconds
    age = standing.lag_seconds
    if loaded := is_only_loaded(table, standing.watermark) and standing.lag_events == 0:
        age = load_age_seconds(table)
    is_known = target is not None and (age is not None or loaded)
    met = age is not None and target is not None and age <= target if is_known else None
    return {"target_seconds": target, "age_seconds": age, "met": met}
