"""Maintenance steps on Spark: one at a time, audited, and safe to do again after a crash.

Each step is one commit of Iceberg's own, which is validated against the table as it is then. One that loses against a
commit of events is tried again by the library for a moment; then it fails, leaves some files for the search for
orphans, and is planned again later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row, SparkSession

from frazil.crash import crash_point
from frazil.lake import MaintenanceSettings
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.commit import RewriteAudit, audit_rewrite, make_durable, rewrites
from frazil.lake.maintenance import MaintenanceStep, apply_retention, find_orphans, remove_orphans, small_below
from frazil.pipeline.commit.target import expire, spark_errors

POOL = "maintenance"
TAG = "frazil-maintenance"
MAX_FILES = 1000
"""One step takes at most so many files, so that it is done, or cancelled without much loss, in bounded time."""
_SORT_GROUP_FILES = 8
"""Files that are sorted together: within such a group no two files overlap, and Spark spills what it cannot hold."""


@dataclass(frozen=True)
class Done:
    """The facts of a finished step, as the journal has them."""

    step: MaintenanceStep
    facts: dict[str, Any]
    seconds: float

    def body(self) -> dict[str, Any]:
        return {**self.step.body(), **self.facts, "seconds": round(self.seconds, 3)}


class SparkMaintenance:
    """Runs steps in one thread of the caller's; `cancel` may be called from another."""

    def __init__(self, lake: Lake, session: SparkSession, settings: MaintenanceSettings) -> None:
        self._lake = lake
        self._session = session.newSession()
        self._settings = settings
        self._proven: set[int] = set()

    def prove(self, name: str) -> RewriteAudit:
        """Audit every rewrite of the table that this process has not, also one that an earlier process died after.

        Its files are put on the disk first: the old ones, which are there, may be gone after the next expiry.
        """
        table = self._lake.table(name)
        done = RewriteAudit()
        for snapshot in rewrites(table):
            if snapshot.snapshot_id not in self._proven:
                make_durable(table, snapshot)
                done += audit_rewrite(table, snapshot)
                self._proven.add(snapshot.snapshot_id)
        return done

    def run(self, step: MaintenanceStep) -> Done:
        """Do the step. `Unavailable`: a commit came first, or it was cancelled; nothing changed, it may work later."""
        started = time.monotonic()
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.addJobTag(TAG)
        self.prove(step.table)
        base = self._lake.table(step.table)
        do = {
            "compact": self._compact,
            "rewrite_manifests": self._rewrite_manifests,
            "expire": self._expire,
            "remove_orphans": self._remove_orphans,
            "retention": self._retention,
        }
        facts = do[step.what](step, base)
        self._lake.table(step.table).watermark  # noqa: B018 - raises when the step has torn it
        return Done(step, facts, time.monotonic() - started)

    def cancel(self) -> None:
        """End what `run` is doing in Spark, as a failure of the step."""
        self._session.sparkContext.cancelJobsWithTag(TAG)

    def _compact(self, step: MaintenanceStep, base: LakeTable) -> dict[str, Any]:
        if base.snapshot_id is None:
            return vars(RewriteAudit())
        target = int(self._settings.target_file_bytes)
        options: dict[str, Any] = {
            "target-file-size-bytes": target,
            "min-file-size-bytes": small_below(self._settings),
            # A group is a task: commits keep the other cores, whatever the size of the table.
            "max-file-group-size-bytes": target * (_SORT_GROUP_FILES if step.sort else 1),
            "max-concurrent-file-group-rewrites": 1,
            "min-input-files": step.min_files,
        }
        if step.sort:
            options["rewrite-all"] = "true"
            columns = ", ".join(f"`{column}`" for column in step.sort)
            how = f", strategy => 'sort', sort_order => '{columns}'"
        else:
            options["max-files-to-rewrite"] = MAX_FILES
            how = ""
        crash_point("before_compact")
        self._call(
            "rewrite_data_files",
            f"table => '{step.table}'{how}, options => map({_map(options)})",
            doing=f"compact {step.table}",
            code="compact_failed",
        )
        crash_point("after_compact")
        return vars(self.prove(step.table))

    def _rewrite_manifests(self, step: MaintenanceStep, base: LakeTable) -> dict[str, Any]:
        if base.snapshot_id is None:
            return {"manifests_before": 0, "manifests_after": 0}
        crash_point("before_manifests")
        (row,) = self._call(
            "rewrite_manifests",
            f"table => '{step.table}', use_caching => false",
            doing=f"rewrite the manifests of {step.table}",
            code="manifests_failed",
        )
        crash_point("after_manifests")
        self.prove(step.table)
        return {"manifests_before": row["rewritten_manifests_count"], "manifests_after": row["added_manifests_count"]}

    def _expire(self, step: MaintenanceStep, base: LakeTable) -> dict[str, Any]:
        assert step.before is not None
        before = len(base.iceberg.metadata.snapshots)
        crash_point("before_expire_planned")
        with spark_errors(f"expire snapshots of {step.table}", code="expire_failed"):
            expire(self._session, f"{self._lake.catalog.name}.{step.table}", older_than=step.before)
        crash_point("after_expire_planned")
        after = self._lake.table(step.table)
        # Commits add some meanwhile.
        new = sum(not base.has_snapshot(snapshot.snapshot_id) for snapshot in after.iceberg.metadata.snapshots)
        return {"snapshots_before": before, "snapshots_after": len(after.iceberg.metadata.snapshots) - new}

    def _remove_orphans(self, step: MaintenanceStep, base: LakeTable) -> dict[str, Any]:
        assert step.before is not None
        orphans = find_orphans(base, before=step.before)
        removed = remove_orphans(base, orphans)
        metadata = sum(orphan.is_metadata for orphan in orphans)
        return {
            "files": removed,
            "metadata_files": metadata,
            "bytes": sum(orphan.bytes for orphan in orphans),
        }

    def _retention(self, step: MaintenanceStep, base: LakeTable) -> dict[str, Any]:
        return apply_retention(
            self._lake,
            base.name,
            today=datetime.now(UTC).date(),
            keep_seconds=self._settings.keep_seconds,
            all_snapshots=step.all_snapshots,
        )

    def _call(self, procedure: str, arguments: str, *, doing: str, code: str) -> list[Row]:
        with spark_errors(doing, code=code):
            return self._session.sql(f"CALL {self._lake.catalog.name}.system.{procedure}({arguments})").collect()


def _map(options: dict[str, Any]) -> str:
    return ", ".join(f"'{key}', '{value}'" for key, value in options.items())
