"""Maintenance: health, compaction plans, snapshot expiry, row retention, orphan files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.maintenance.health import Health as Health
    from frazil.lake.maintenance.health import health_of as health_of
    from frazil.lake.maintenance.last_runs import Upkept as Upkept
    from frazil.lake.maintenance.last_runs import remember_upkeep as remember_upkeep
    from frazil.lake.maintenance.last_runs import upkept as upkept
    from frazil.lake.maintenance.orphans import find_orphans as find_orphans
    from frazil.lake.maintenance.orphans import remove_orphans as remove_orphans
    from frazil.lake.maintenance.plan import Step as Step
    from frazil.lake.maintenance.plan import plan_upkeep as plan_upkeep
    from frazil.lake.maintenance.plan import requested_steps as requested_steps
    from frazil.lake.maintenance.plan import small_below as small_below
    from frazil.lake.maintenance.plan import verdict as verdict
    from frazil.lake.maintenance.row_removal import apply_retention as apply_retention
    from frazil.lake.maintenance.row_retention import plan_retention as plan_retention
    from frazil.lake.maintenance.snapshot_expiry import beyond_budget as beyond_budget

__getattr__, __all__ = lazy_door(__name__)
