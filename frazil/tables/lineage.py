"""Lineage of a table: the sources of its rows, and its loads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from frazil.events import first_position
from frazil.lake.bulk import LoadRecord, lineage, load_records
from frazil.lake.catalog import LakeTable
from frazil.registry import Registry

_LOADS_LISTED = 20


def newest_loads(registry: Registry, table: LakeTable, *, limit: int) -> list[dict[str, Any]]:
    """The newest loads of a table, in short."""
    return [_brief(record, table) for record in _newest_first(registry, table)[:limit]]


def table_lineage(registry: Registry, table: LakeTable) -> dict[str, Any]:
    """`lineage`: every source with its job, the latest first. `loads`: the newest ones."""
    records = _newest_first(registry, table)
    found = lineage(records[::-1])
    if events := _of_events(table, {*table.loads, *(record.id for record in records)}):
        found.append(events)
    return {
        "lineage": sorted(found, key=lambda entry: str(entry["last_loaded_at"] or ""), reverse=True),
        "loads": [_brief(record, table) for record in records[:_LOADS_LISTED]],
    }


def _last_loaded_at(table: LakeTable) -> datetime | None:
    """When rows last came into the table. What maintenance did since is marked by nobody."""
    return next((known.committed_at for known in table.snapshots() if known.watermark is not None), None)


def is_only_loaded(table: LakeTable, watermark: int | None) -> bool:
    """Whether loads alone have written to it so far."""
    if not table.spec.is_streamed:
        return True
    return table.spec.kind == "log" and watermark == first_position(1) and table.snapshot_id is not None


def load_age_seconds(table: LakeTable) -> float | None:
    loaded_at = _last_loaded_at(table)
    return None if loaded_at is None else round(max(0.0, (datetime.now(UTC) - loaded_at).total_seconds()), 3)


def _newest_first(registry: Registry, table: LakeTable) -> list[LoadRecord]:
    return sorted(load_records(registry, table.uuid), key=lambda record: record.began_at, reverse=True)


def _of_events(table: LakeTable, loads: set[str]) -> dict[str, Any] | None:
    """The entry for what was published to the table's stream, if anything was committed from there."""
    if not table.spec.is_streamed or int(table.properties.get("frazil.watermark") or 0) <= first_position(1):
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
