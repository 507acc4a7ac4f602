"""Load log: the record of each bulk load of a table, and of the files that it read.

A record is written before its load is published, and completed after. So a load that was cut off in between is known,
and the next try finds by the table itself whether it took effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from frazil.errors import Conflict
from frazil.registry import Registry

_RECORD = "load/"
_FILE = "loaded-file/"


@dataclass(frozen=True)
class LoadedFile:
    name: str
    sha256: str
    size: int
    rows: int = 0


@dataclass(frozen=True)
class LoadRecord:
    """One load of one table. `source` and `job` are the lineage: where the rows come from, and what brought them."""

    id: str
    source: str
    job: str
    began_at: datetime
    rows: int
    files: tuple[LoadedFile, ...] = ()
    done_at: datetime | None = None
    """None while it is not known to be published."""
    snapshot_id: int | None = None
    report: dict[str, Any] = field(default_factory=dict)


def begin_load(registry: Registry, table_uuid: str, record: LoadRecord) -> None:
    """Record the load that is about to be published; the record of an earlier try is overwritten."""
    _put(registry, _key(table_uuid, record.id), record)


def complete_load(registry: Registry, table_uuid: str, record: LoadRecord, *, snapshot_id: int | None) -> LoadRecord:
    """Record that the load is published: its files first, then the load. Doing it again changes nothing."""
    for file in record.files:
        with contextlib.suppress(Conflict):  # the same content under two names
            registry.put(f"{_FILE}{table_uuid}/{file.sha256}", record.id.encode(), None)
    done = replace(record, done_at=datetime.now(UTC), snapshot_id=snapshot_id)
    _put(registry, _key(table_uuid, record.id), done)
    return done


def load_record(registry: Registry, table_uuid: str, load_id: str) -> LoadRecord | None:
    found = registry.get(_key(table_uuid, load_id))
    return msgspec.json.decode(found.body, type=LoadRecord) if found else None


def load_records(registry: Registry, table_uuid: str) -> list[LoadRecord]:
    """Every load of the table, the oldest first."""
    return [msgspec.json.decode(found.body, type=LoadRecord) for found in registry.list(f"{_RECORD}{table_uuid}/")]


def load_of_file(registry: Registry, table_uuid: str, sha256: str) -> str | None:
    """The load that brought a file of this content into the table."""
    found = registry.get(f"{_FILE}{table_uuid}/{sha256}")
    return found.body.decode() if found else None


def forget_files(registry: Registry, table_uuid: str, *, but: Iterable[str]) -> None:
    """A table whose rows were replaced no longer has what earlier files brought: they may be loaded again."""
    excepted = set(but)
    for found in registry.list(f"{_FILE}{table_uuid}/"):
        if found.key.rpartition("/")[2] not in excepted:
            with contextlib.suppress(Conflict):
                registry.delete(found.key, found.version)


def forget_loads(registry: Registry, table_uuid: str) -> None:
    """Delete all records of a table that was purged."""
    for prefix in (_RECORD, _FILE):
        for found in registry.list(f"{prefix}{table_uuid}/"):
            with contextlib.suppress(Conflict):
                registry.delete(found.key, found.version)


def lineage(records: Sequence[LoadRecord]) -> list[dict[str, Any]]:
    """Source → job → table, summed over the loads that are done; the latest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        if record.done_at is None:
            continue
        entry = found.setdefault((record.source, record.job), {"source": record.source, "job": record.job, "loads": 0})
        entry["loads"] += 1
        entry["rows"] = entry.get("rows", 0) + record.rows
        entry["last_load"] = record.id
        entry["last_loaded_at"] = record.done_at.isoformat()
    return sorted(found.values(), key=lambda entry: str(entry["last_loaded_at"]), reverse=True)


def _key(table_uuid: str, load_id: str) -> str:
    return f"{_RECORD}{table_uuid}/{load_id}"


def _put(registry: Registry, key: str, record: LoadRecord) -> None:
    known = registry.get(key)
    registry.put(key, msgspec.json.encode(record), known.version if known else None)
