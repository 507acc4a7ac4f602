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
    from frazil.lake.export import ExportHint, export_hint
    from frazil.lake.registry import Document, Registry
    from frazil.lake.table import LakeTable, SnapshotInfo
    from frazil.lake.travel import SnapshotExpired, columns_at, snapshot_as_of, snapshot_by_id, snapshot_with

_HOMES = {
    "AuditFailed": "commit",
    "Document": "registry",
    "ExportHint": "export",
    "Lake": "catalog",
    "LakeTable": "table",
    "Outcome": "commit",
    "Published": "commit",
    "Registry": "registry",
    "SnapshotExpired": "travel",
    "SnapshotInfo": "table",
    "audit": "commit",
    "changed_by": "catalog",
    "columns_at": "travel",
    "export_hint": "export",
    "make_durable": "commit",
    "open_lake": "catalog",
    "publish": "commit",
    "same_declaration": "catalog",
    "snapshot_as_of": "travel",
    "snapshot_by_id": "travel",
    "snapshot_with": "travel",
}

__all__ = [
    "AuditFailed",
    "Document",
    "ExportHint",
    "Lake",
    "LakeTable",
    "Outcome",
    "Published",
    "Registry",
    "SnapshotExpired",
    "SnapshotInfo",
    "audit",
    "changed_by",
    "columns_at",
    "export_hint",
    "make_durable",
    "open_lake",
    "publish",
    "same_declaration",
    "snapshot_as_of",
    "snapshot_by_id",
    "snapshot_with",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
