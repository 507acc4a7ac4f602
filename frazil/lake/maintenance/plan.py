"""Maintenance plan: the steps that a table needs, from its health and a clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from frazil.errors import InvalidInput
from frazil.events.declaration import TableSpec
from frazil.lake.maintenance.health import Health
from frazil.lake.maintenance.row_retention import no_retention, retention_cutoff
from frazil.lake.maintenance.snapshot_expiry import expiry_cutoff
from frazil.lake.settings import MaintenanceSettings

What = Literal["compact", "rewrite_manifests", "expire", "remove_orphans", "retention"]
WORDS: tuple[What, ...] = ("compact", "rewrite_manifests", "expire", "remove_orphans", "retention")
_RETENTION_INTERVAL = timedelta(days=1)


@dataclass(frozen=True)
class MaintenanceStep:
    """One thing to do to one table. Doing it twice is doing it once."""

    what: What
    table: str
    why: str
    sort: tuple[str, ...] = ()
    """Columns to order the rows by; then every file is rewritten, not only the small ones."""
    min_files: int = 2
    """Fewer small files than this in a partition are left alone."""
    before: datetime | None = None
    """Snapshots, files, or rows from before this moment are meant."""
    all_snapshots: bool = False
    """With rows beyond their years, whether the younger snapshots that hold them go too."""

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"what": self.what, "table": self.table.removeprefix("main."), "why": self.why}
        if self.sort:
            body["sort"] = list(self.sort)
        if self.before is not None:
            body["before"] = self.before.isoformat()
        if self.all_snapshots:
            body["all_snapshots"] = True
        return body

    @property
    def command(self) -> str:
        verb = {"rewrite_manifests": "compact", "remove_orphans": "orphans"}.get(self.what, self.what)
        return f"frazil {verb} {self.table.removeprefix('main.')}"


def plan_maintenance(
    health: Health,
    settings: MaintenanceSettings,
    *,
    snapshot_budget: int,
    now: datetime,
    orphans_sought_at: datetime | None = None,
    retention_applied_at: datetime | None = None,
) -> list[MaintenanceStep]:
    """The steps that the table needs now, in their order: later steps find what earlier ones free.

    Orphans are sought by the clock alone, because looking for them is most of the work; without a time of the last
    search there is none in the plan. So are rows beyond their years, and only where the settings allow it.
    """
    # Where every snapshot stays, a rewrite frees nothing: it would only store the rows once more.
    found = [] if health.keeps_all_snapshots else _compaction(health, settings)
    found += _expiry(health, settings, snapshot_budget=snapshot_budget, now=now)
    if settings.apply_retention and health.retention_years is not None and retention_applied_at is not None:
        due = retention_applied_at + _RETENTION_INTERVAL <= now
        found += [_retention(health.table, health.retention_years, now)] if due else []
    if orphans_sought_at is not None:
        due = orphans_sought_at + timedelta(seconds=settings.orphan_interval_seconds) <= now
        found += [_orphans(health.table, settings, now)] if due else []
    return found


def requested_steps(
    what: str,
    spec: TableSpec,
    health: Health,
    settings: MaintenanceSettings,
    *,
    snapshot_budget: int,
    now: datetime,
    sort: tuple[str, ...] = (),
    all_snapshots: bool = False,
) -> list[MaintenanceStep]:
    """The steps of one kind that a caller requests; a compaction then takes every small file that has a second one."""
    if what not in WORDS:
        raise InvalidInput(f"{what!r:.80} is no maintenance", code="bad_maintenance", hint=f"one of {', '.join(WORDS)}")
    unknown = [column for column in sort if column not in spec.row_schema().names]
    if unknown:
        raise InvalidInput(
            f"{spec.short_name!r} has no column {unknown[0]!r:.80}", code="unknown_column", hint="sort by its columns"
        )
    if sort and what != "compact":
        raise InvalidInput("only a compaction sorts", code="bad_maintenance", hint="leave `sort` out")
    if what == "compact":
        if sort:
            files = f"{health.files} files are ordered by {', '.join(sort)}"
            return [MaintenanceStep("compact", health.table, files, sort=sort, min_files=1)] if health.files else []
        return _compaction(health, settings.model_copy(update={"min_small_files": 2}))
    if what == "rewrite_manifests":
        return [MaintenanceStep("rewrite_manifests", health.table, "it was requested")] if health.manifests > 1 else []
    if what == "expire":
        return _expiry(health, settings, snapshot_budget=snapshot_budget, now=now)
    if what == "retention":
        if spec.retention_years is None:
            raise no_retention(spec)
        return [_retention(health.table, spec.retention_years, now, all_snapshots=all_snapshots)]
    return [_orphans(health.table, settings, now)]


def health_verdict(steps: list[MaintenanceStep]) -> str:
    """`good`, or the problems with the commands that repair them."""
    return "; ".join(f"{step.why}: {step.command}" for step in steps) or "good"


def small_below(settings: MaintenanceSettings) -> int:
    return int(settings.target_file_bytes * settings.small_file_share)


def _compaction(health: Health, settings: MaintenanceSettings) -> list[MaintenanceStep]:
    found = []
    many = sum(number for number in health.small_by_partition if number >= settings.min_small_files)
    if many:
        why = f"{many} files are smaller than {small_below(settings) / 1e6:.3g} MB"
        found.append(MaintenanceStep("compact", health.table, why, min_files=settings.min_small_files))
    if health.manifests > settings.max_manifests:
        found.append(MaintenanceStep("rewrite_manifests", health.table, f"there are {health.manifests} manifests"))
    return found


def _expiry(
    health: Health, settings: MaintenanceSettings, *, snapshot_budget: int, now: datetime
) -> list[MaintenanceStep]:
    before = expiry_cutoff(
        health.lineage,
        budget=snapshot_budget,
        keep_seconds=settings.keep_seconds,
        age_seconds=settings.snapshot_age_seconds,
        now=now,
    )
    if before is None or health.keeps_all_snapshots:
        return []
    number = sum(snapshot.committed_at < before for snapshot in health.lineage)
    why = f"{number} of {len(health.lineage)} snapshots are beyond their time"
    return [MaintenanceStep("expire", health.table, why, before=before)]


def _retention(table: str, years: float, now: datetime, *, all_snapshots: bool = False) -> MaintenanceStep:
    why = f"rows are kept for {years:g} years"
    return MaintenanceStep(
        "retention", table, why, before=retention_cutoff(years, now.date()), all_snapshots=all_snapshots
    )


def _orphans(table: str, settings: MaintenanceSettings, now: datetime) -> MaintenanceStep:
    before = now - timedelta(seconds=settings.orphan_age_seconds)
    return MaintenanceStep("remove_orphans", table, "files that no snapshot names", before=before)
