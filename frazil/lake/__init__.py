"""The lake: Iceberg tables in a SQL catalog, and the commit that makes rows visible exactly once.

The names below are imported when they are first used: PyIceberg takes a second, and the command line must not wait for
it when it only starts other processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.lake.beyond import RetentionPlan, cut_at, plan_retention
    from frazil.lake.catalog import Lake, changed_by, open_lake, same_declaration
    from frazil.lake.commit import AuditFailed, Outcome, Published, audit, make_durable, publish
    from frazil.lake.data_files import FilePlan, FileWriter, WrittenFile, plan_files
    from frazil.lake.export import ExportHint, export_hint
    from frazil.lake.health import Health, health_of
    from frazil.lake.jobs import Job, ask_job, finish_job, job_status, list_jobs, open_jobs, tell_progress
    from frazil.lake.load_log import (
        LoadedFile,
        LoadRecord,
        begin_load,
        complete_load,
        forget_files,
        forget_loads,
        lineage,
        load_of_file,
        load_record,
        load_records,
    )
    from frazil.lake.loads import Load, Loaded, Replaces, load_position, loaded_snapshot, publish_load
    from frazil.lake.orphans import Orphan, find_orphans, remove_orphans
    from frazil.lake.purge import Purge, begin_purge, plan_purge, purge_files
    from frazil.lake.recover import Recovered, repair_catalog
    from frazil.lake.registry import Document, Registry
    from frazil.lake.removal import apply_retention
    from frazil.lake.retention import beyond_budget, expire_before
    from frazil.lake.rewritten import Rewritten, audit_rewrite, rewrites
    from frazil.lake.table import LakeTable, SnapshotInfo
    from frazil.lake.travel import SnapshotExpired, columns_at, snapshot_as_of, snapshot_by_id, snapshot_with
    from frazil.lake.upkeep import Step, plan_upkeep, requested_steps, small_below, verdict
    from frazil.lake.upkeep_state import Upkept, remember_upkeep, upkept

_HOMES = {
    "AuditFailed": "commit",
    "Document": "registry",
    "ExportHint": "export",
    "FilePlan": "data_files",
    "FileWriter": "data_files",
    "Health": "health",
    "Job": "jobs",
    "Lake": "catalog",
    "LakeTable": "table",
    "Load": "loads",
    "LoadRecord": "load_log",
    "Loaded": "loads",
    "LoadedFile": "load_log",
    "Orphan": "orphans",
    "Outcome": "commit",
    "Published": "commit",
    "Purge": "purge",
    "Recovered": "recover",
    "Registry": "registry",
    "Replaces": "loads",
    "RetentionPlan": "beyond",
    "Rewritten": "rewritten",
    "SnapshotExpired": "travel",
    "SnapshotInfo": "table",
    "Step": "upkeep",
    "Upkept": "upkeep_state",
    "WrittenFile": "data_files",
    "apply_retention": "removal",
    "ask_job": "jobs",
    "audit": "commit",
    "audit_rewrite": "rewritten",
    "begin_load": "load_log",
    "begin_purge": "purge",
    "beyond_budget": "retention",
    "changed_by": "catalog",
    "columns_at": "travel",
    "complete_load": "load_log",
    "cut_at": "beyond",
    "expire_before": "retention",
    "export_hint": "export",
    "find_orphans": "orphans",
    "finish_job": "jobs",
    "forget_files": "load_log",
    "forget_loads": "load_log",
    "health_of": "health",
    "job_status": "jobs",
    "lineage": "load_log",
    "list_jobs": "jobs",
    "load_of_file": "load_log",
    "load_position": "loads",
    "load_record": "load_log",
    "load_records": "load_log",
    "loaded_snapshot": "loads",
    "make_durable": "commit",
    "open_jobs": "jobs",
    "open_lake": "catalog",
    "plan_files": "data_files",
    "plan_purge": "purge",
    "plan_retention": "beyond",
    "plan_upkeep": "upkeep",
    "publish": "commit",
    "publish_load": "loads",
    "purge_files": "purge",
    "remember_upkeep": "upkeep_state",
    "remove_orphans": "orphans",
    "repair_catalog": "recover",
    "requested_steps": "upkeep",
    "rewrites": "rewritten",
    "same_declaration": "catalog",
    "small_below": "upkeep",
    "snapshot_as_of": "travel",
    "snapshot_by_id": "travel",
    "snapshot_with": "travel",
    "tell_progress": "jobs",
    "upkept": "upkeep_state",
    "verdict": "upkeep",
}

__all__ = [
    "AuditFailed",
    "Document",
    "ExportHint",
    "FilePlan",
    "FileWriter",
    "Health",
    "Job",
    "Lake",
    "LakeTable",
    "Load",
    "LoadRecord",
    "Loaded",
    "LoadedFile",
    "Orphan",
    "Outcome",
    "Published",
    "Purge",
    "Recovered",
    "Registry",
    "Replaces",
    "RetentionPlan",
    "Rewritten",
    "SnapshotExpired",
    "SnapshotInfo",
    "Step",
    "Upkept",
    "WrittenFile",
    "apply_retention",
    "ask_job",
    "audit",
    "audit_rewrite",
    "begin_load",
    "begin_purge",
    "beyond_budget",
    "changed_by",
    "columns_at",
    "complete_load",
    "cut_at",
    "expire_before",
    "export_hint",
    "find_orphans",
    "finish_job",
    "forget_files",
    "forget_loads",
    "health_of",
    "job_status",
    "lineage",
    "list_jobs",
    "load_of_file",
    "load_position",
    "load_record",
    "load_records",
    "loaded_snapshot",
    "make_durable",
    "open_jobs",
    "open_lake",
    "plan_files",
    "plan_purge",
    "plan_retention",
    "plan_upkeep",
    "publish",
    "publish_load",
    "purge_files",
    "remember_upkeep",
    "remove_orphans",
    "repair_catalog",
    "requested_steps",
    "rewrites",
    "same_declaration",
    "small_below",
    "snapshot_as_of",
    "snapshot_by_id",
    "snapshot_with",
    "tell_progress",
    "upkept",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
