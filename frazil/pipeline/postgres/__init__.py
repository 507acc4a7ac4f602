"""Tables of a Postgres as Arrow, exactly: one snapshot, parallel ranges, every type accounted for.

dsn = read_dsn(name, settings)
selection = select(dsn, settings.in_schema, settings.tables, settings.exclude)
with exported(dsn, selection) as snapshot:
    for table in snapshot.tables:
        plan = plan_table(table, clean)
        for within in ranges_of(table):                                # each in a task of its own
            read_range(dsn, snapshot.snapshot_id, plan, within)
    snapshot.check()                                                   # only then does what was read count
"""

from frazil.pipeline.postgres.catalog import Column, Part, Refused, Relation, Selection, SourceTable, select
from frazil.pipeline.postgres.cursor import CursorRead, CursorState, plan_cursor, start_of
from frazil.pipeline.postgres.dsn import Dsn, parse_dsn
from frazil.pipeline.postgres.link import Patience, PostgresFailed
from frazil.pipeline.postgres.ranges import Range, ranges_of
from frazil.pipeline.postgres.read import ColumnPlan, TablePlan, plan_table, read_range
from frazil.pipeline.postgres.snapshot import Exported, SnapshotLost, exported
from frazil.pipeline.postgres.source import leniency_of, patience_of, read_dsn
from frazil.pipeline.postgres.types import FIDELITY, Fidelity, Leniency, fidelity_table

__all__ = [
    "FIDELITY",
    "Column",
    "ColumnPlan",
    "CursorRead",
    "CursorState",
    "Dsn",
    "Exported",
    "Fidelity",
    "Leniency",
    "Part",
    "Patience",
    "PostgresFailed",
    "Range",
    "Refused",
    "Relation",
    "Selection",
    "SnapshotLost",
    "SourceTable",
    "TablePlan",
    "exported",
    "fidelity_table",
    "leniency_of",
    "parse_dsn",
    "patience_of",
    "plan_cursor",
    "plan_table",
    "ranges_of",
    "read_dsn",
    "read_range",
    "select",
    "start_of",
]
