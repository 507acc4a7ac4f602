"""Tables: a table as one thing, from its catalog entry and its stream; equal for SQL, search and the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.tables.alter import alter_table as alter_table
    from frazil.tables.create import create_table as create_table
    from frazil.tables.create import declare_table as declare_table
    from frazil.tables.cut import CutMoved as CutMoved
    from frazil.tables.cut import CutTail as CutTail
    from frazil.tables.cut import HistoryOverlay as HistoryOverlay
    from frazil.tables.cut import Reach as Reach
    from frazil.tables.cut import TableCut as TableCut
    from frazil.tables.directory import Source as Source
    from frazil.tables.directory import TableDirectory as TableDirectory
    from frazil.tables.directory import source_of as source_of
    from frazil.tables.drop import drop_table as drop_table
    from frazil.tables.drop import dropped_tables as dropped_tables
    from frazil.tables.drop import undrop_table as undrop_table
    from frazil.tables.errors import SchemaMoved as SchemaMoved
    from frazil.tables.errors import TableReplaced as TableReplaced
    from frazil.tables.lineage import is_only_loaded as is_only_loaded
    from frazil.tables.lineage import load_age_seconds as load_age_seconds
    from frazil.tables.lineage import newest_loads as newest_loads
    from frazil.tables.lineage import table_lineage as table_lineage
    from frazil.tables.live_tail import LiveTail as LiveTail
    from frazil.tables.live_tail import TailMemory as TailMemory
    from frazil.tables.repair import repair_bus as repair_bus
    from frazil.tables.repair import repair_watermark as repair_watermark
    from frazil.tables.resolve import ResolvedTable as ResolvedTable
    from frazil.tables.resolve import TableRead as TableRead
    from frazil.tables.resolve import TableResolver as TableResolver
    from frazil.tables.status import StreamLag as StreamLag
    from frazil.tables.status import TableStatus as TableStatus
    from frazil.tables.stream import TAIL_BYTES as TAIL_BYTES
    from frazil.tables.stream import TableStream as TableStream
    from frazil.tables.stream import WarmStream as WarmStream
    from frazil.tables.stream_ids import Backlog as Backlog
    from frazil.tables.stream_ids import StreamIds as StreamIds
    from frazil.tables.stream_ids import received_us as received_us
    from frazil.tables.visibility import check_mark as check_mark
    from frazil.tables.visibility import check_reached as check_reached
    from frazil.tables.visibility import until_committed as until_committed
    from frazil.tables.warm_up_progress import WarmUpProgress as WarmUpProgress

__getattr__, __all__ = lazy_door(__name__)
