"""Lake: Iceberg tables in a SQL catalog. Each folder is one verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.settings import CatalogSettings as CatalogSettings
    from frazil.lake.settings import MaintenanceSettings as MaintenanceSettings

__getattr__, __all__ = lazy_door(__name__)
