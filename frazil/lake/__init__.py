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
    from frazil.lake.entity import (
        Entity,
        alter_entity,
        brought_in_line,
        create_entity,
        drop_entity,
        finish_declaring,
        load_entity,
        paired,
        undrop,
    )
    from frazil.lake.export import ExportHint, export_hint
    from frazil.lake.folded import Folded, audit_fold
    from frazil.lake.health import Health, health_of
    from frazil.lake.orphans import Orphan, find_orphans, remove_orphans
    from frazil.lake.registry import Document, Registry
    from frazil.lake.requests import (
        Request,
        Upkept,
        answer_request,
        ask_upkeep,
        remember_upkeep,
        request_result,
        upkept,
        waiting_requests,
    )
    from frazil.lake.retention import beyond_budget, expire_before
    from frazil.lake.rewritten import Rewritten, audit_rewrite, rewrites
    from frazil.lake.table import LakeTable, SnapshotInfo
    from frazil.lake.travel import (
        SnapshotExpired,
        columns_at,
        snapshot_as_of,
        snapshot_by_id,
        snapshot_with,
        watermark_at,
    )
    from frazil.lake.upkeep import Step, plan_upkeep, requested_steps, small_below, verdict

_HOMES = {
    "AuditFailed": "commit",
    "Document": "registry",
    "Entity": "entity",
    "ExportHint": "export",
    "Folded": "folded",
    "Health": "health",
    "Lake": "catalog",
    "LakeTable": "table",
    "Orphan": "orphans",
    "Outcome": "commit",
    "Published": "commit",
    "Registry": "registry",
    "Request": "requests",
    "Rewritten": "rewritten",
    "SnapshotExpired": "travel",
    "SnapshotInfo": "table",
    "Step": "upkeep",
    "Upkept": "requests",
    "alter_entity": "entity",
    "answer_request": "requests",
    "ask_upkeep": "requests",
    "audit": "commit",
    "audit_fold": "folded",
    "audit_rewrite": "rewritten",
    "beyond_budget": "retention",
    "brought_in_line": "entity",
    "changed_by": "catalog",
    "columns_at": "travel",
    "create_entity": "entity",
    "drop_entity": "entity",
    "expire_before": "retention",
    "export_hint": "export",
    "find_orphans": "orphans",
    "finish_declaring": "entity",
    "health_of": "health",
    "load_entity": "entity",
    "make_durable": "commit",
    "open_lake": "catalog",
    "paired": "entity",
    "plan_upkeep": "upkeep",
    "publish": "commit",
    "remember_upkeep": "requests",
    "remove_orphans": "orphans",
    "request_result": "requests",
    "requested_steps": "upkeep",
    "rewrites": "rewritten",
    "same_declaration": "catalog",
    "small_below": "upkeep",
    "snapshot_as_of": "travel",
    "snapshot_by_id": "travel",
    "snapshot_with": "travel",
    "undrop": "entity",
    "upkept": "requests",
    "verdict": "upkeep",
    "waiting_requests": "requests",
    "watermark_at": "travel",
}

__all__ = [
    "AuditFailed",
    "Document",
    "Entity",
    "ExportHint",
    "Folded",
    "Health",
    "Lake",
    "LakeTable",
    "Orphan",
    "Outcome",
    "Published",
    "Registry",
    "Request",
    "Rewritten",
    "SnapshotExpired",
    "SnapshotInfo",
    "Step",
    "Upkept",
    "alter_entity",
    "answer_request",
    "ask_upkeep",
    "audit",
    "audit_fold",
    "audit_rewrite",
    "beyond_budget",
    "brought_in_line",
    "changed_by",
    "columns_at",
    "create_entity",
    "drop_entity",
    "expire_before",
    "export_hint",
    "find_orphans",
    "finish_declaring",
    "health_of",
    "load_entity",
    "make_durable",
    "open_lake",
    "paired",
    "plan_upkeep",
    "publish",
    "remember_upkeep",
    "remove_orphans",
    "request_result",
    "requested_steps",
    "rewrites",
    "same_declaration",
    "small_below",
    "snapshot_as_of",
    "snapshot_by_id",
    "snapshot_with",
    "undrop",
    "upkept",
    "verdict",
    "waiting_requests",
    "watermark_at",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
