"""The lake: Iceberg tables in a SQL catalog, and the commit that makes rows visible exactly once.

The names below are imported when they are first used: PyIceberg takes a second, and the command line must not wait for
it when it only starts other processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.lake.catalog import Lake, changed_by, open_lake, same_declaration
    from frazil.lake.commit import AuditFailed, Outcome, Published, audit, make_durable, publish
    from frazil.lake.table import LakeTable, SnapshotInfo

_HOMES = {
    "AuditFailed": "commit",
    "Lake": "catalog",
    "LakeTable": "table",
    "Outcome": "commit",
    "Published": "commit",
    "SnapshotInfo": "table",
    "audit": "commit",
    "changed_by": "catalog",
    "make_durable": "commit",
    "open_lake": "catalog",
    "publish": "commit",
    "same_declaration": "catalog",
}

__all__ = [
    "AuditFailed",
    "Lake",
    "LakeTable",
    "Outcome",
    "Published",
    "SnapshotInfo",
    "audit",
    "changed_by",
    "make_durable",
    "open_lake",
    "publish",
    "same_declaration",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
