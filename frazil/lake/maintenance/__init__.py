"""Maintenance: health, compaction plans, snapshot expiry, row retention, orphan files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.maintenance.health import Health as Health
    from frazil.lake.maintenance.health import health_of as health_of
    from frazil.lake.maintenance.last_runs import LastRuns as LastRuns
    from frazil.lake.maintenance.last_runs import last_runs_of as last_runs_of
    from frazil.lake.maintenance.last_runs import save_last_runs as save_last_runs
    from frazil.lake.maintenance.orphans import find_orphans as find_orphans
    from frazil.lake.maintenance.orphans import remove_orphans as remove_orphans
    from frazil.lake.maintenance.plan import MaintenanceStep as MaintenanceStep
    from frazil.lake.maintenance.plan import health_verdict as health_verdict
    from frazil.lake.maintenance.plan import plan_maintenance as plan_maintenance
    from frazil.lake.maintenance.plan import requested_steps as requested_steps
    from frazil.lake.maintenance.plan import small_below as small_below
    from frazil.lake.maintenance.row_removal import apply_retention as apply_retention
    from frazil.lake.maintenance.row_retention import plan_retention as plan_retention
    from frazil.lake.maintenance.snapshot_expiry import snapshots_over_budget as snapshots_over_budget

__getattr__, __all__ = lazy_door(__name__)
