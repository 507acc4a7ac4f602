"""CSV loads: files scanned, typed, converted in Spark tasks, published as one load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.sources.csv.folder_trigger import FolderTrigger as FolderTrigger
    from frazil.pipeline.sources.csv.handler import CsvLoads as CsvLoads
    from frazil.pipeline.sources.csv.load_options import parse_load as parse_load
    from frazil.pipeline.sources.csv.unpacking import UnpackLimits as UnpackLimits

__getattr__, __all__ = lazy_door(__name__)
