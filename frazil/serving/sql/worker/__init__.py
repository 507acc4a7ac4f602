"""SQL worker: a forked, sandboxed process with a locked DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.sql.worker.duckdb_types import DuckType as DuckType
    from frazil.serving.sql.worker.duckdb_types import parse_type as parse_type
    from frazil.serving.sql.worker.entity_overlay import EntityOverlay as EntityOverlay
    from frazil.serving.sql.worker.json_values import cells as cells
    from frazil.serving.sql.worker.sandbox import kernel_support as kernel_support
    from frazil.serving.sql.worker.selection import RowSelection as RowSelection
    from frazil.serving.sql.worker.views import sql_type as sql_type

__getattr__, __all__ = lazy_door(__name__)
