"""Runtime: live objects built from settings. The one place that wires parts together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.runtime.backends import Backends as Backends
    from frazil.runtime.backends import connect_bus as connect_bus
    from frazil.runtime.backends import open_journal as open_journal
    from frazil.runtime.backends import open_parts as open_parts
    from frazil.runtime.backends import open_the_lake as open_the_lake
    from frazil.runtime.backends import open_warehouse as open_warehouse
    from frazil.runtime.gateway import assemble_gateway as assemble_gateway
    from frazil.runtime.gateway import run_gateway as run_gateway
    from frazil.runtime.pipeline import run_pipeline as run_pipeline

__getattr__, __all__ = lazy_door(__name__)
