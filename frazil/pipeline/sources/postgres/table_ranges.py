"""Table ranges: parts of a table that are read side by side; together every row, none of them twice.

A range is a run of pages of the heap. The rows that a snapshot sees do not change their place while it is held (see
`snapshot.py`), and the last range is open at its end. Ranges by LIMIT and OFFSET would be neither complete nor cheap.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.pipeline.sources.postgres.source_tables import SourceRelation, SourceTable, TablePartition

TARGET_BYTES = 256 << 20
LEAST_BYTES = 16 << 20
"""Below this the connection of a range takes as long as its rows."""


@dataclass(frozen=True)
class Range:
    """Rows of a relation, between two pages where they are given."""

    relation: SourceRelation
    first_block: int | None = None
    end_block: int | None = None
    """Not included; None means to the end."""

    @property
    def condition(self) -> str:
        """What to write behind WHERE; empty for every row."""
        bounds = []
        if self.first_block:
            bounds.append(f"ctid >= '({self.first_block},0)'::tid")
        if self.end_block is not None:
            bounds.append(f"ctid < '({self.end_block},0)'::tid")
        return " AND ".join(bounds)

    def __str__(self) -> str:
        if not self.condition:
            return str(self.relation)
        return f"{self.relation} pages {self.first_block or 0}–{'' if self.end_block is None else self.end_block}"


def ranges_of(table: SourceTable, target_bytes: int = TARGET_BYTES, *, side_by_side: int = 1) -> tuple[Range, ...]:
    """The ranges of a table, of about `target_bytes` each, what is stored beside the pages (TOAST) included.

    So many more that each of the readers has one, and no reader is left without one at the end.
    """
    return tuple(found for part in table.parts for found in _ranges_of(part, target_bytes, side_by_side))


def _ranges_of(part: TablePartition, target_bytes: int, side_by_side: int) -> list[Range]:
    if not part.blocks:
        return [Range(part.relation)]
    wanted = max(1, round(part.bytes / target_bytes))
    even = -(-wanted // side_by_side) * side_by_side
    count = min(part.blocks, max(wanted, min(even, part.bytes // LEAST_BYTES)))
    borders = [part.blocks * index // count for index in range(count)]
    return [Range(part.relation, first, end) for first, end in zip(borders, [*borders[1:], None], strict=True)]
