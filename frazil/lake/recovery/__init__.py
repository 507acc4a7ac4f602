"""Recovery: a lost catalog rebuilt, missing files named, watermarks repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.recovery.catalog_rebuild import repair_catalog as repair_catalog
    from frazil.lake.recovery.watermark_repair import lost_ranges as lost_ranges
    from frazil.lake.recovery.watermark_repair import repair_id as repair_id
    from frazil.lake.recovery.watermark_repair import restate_watermark as restate_watermark
    from frazil.lake.recovery.watermark_repair import skip_lost_range as skip_lost_range

__getattr__, __all__ = lazy_door(__name__)
