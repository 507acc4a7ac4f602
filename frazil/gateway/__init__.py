"""Gateway: the process that takes events and answers SQL and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.gateway import Gateway as Gateway
    from frazil.gateway.metrics import Metrics as Metrics
    from frazil.gateway.settings import IngestSettings as IngestSettings
    from frazil.gateway.settings import ServerSettings as ServerSettings

__getattr__, __all__ = lazy_door(__name__)
