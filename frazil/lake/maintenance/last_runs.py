"""Last runs of maintenance on a table, in the registry: its snapshots expire."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime

import msgspec

from frazil.errors import Conflict
from frazil.registry import Registry

_STATE = "maintenance/state/"


@dataclass(frozen=True)
class LastRuns:
    compacted_at: datetime | None = None
    orphans_sought_at: datetime | None = None
    retention_applied_at: datetime | None = None


def last_runs_of(registry: Registry, table_uuid: str) -> LastRuns:
    found = registry.get(_STATE + table_uuid)
    return LastRuns() if found is None else msgspec.json.decode(found.body, type=LastRuns)


def save_last_runs(registry: Registry, table_uuid: str, state: LastRuns) -> None:
    found = registry.get(_STATE + table_uuid)
    with contextlib.suppress(Conflict):  # another pipeline did the same work at the same moment
        registry.put(_STATE + table_uuid, msgspec.json.encode(state), found.version if found else None)
