"""Watermark repair by a person's decision: the only commits, besides those of events, that move the watermark.

Both keep the rule that a watermark stands twice, in the properties and in the newest marked snapshot.
"""

from __future__ import annotations

import uuid

import msgspec
from pyiceberg.exceptions import CommitFailedException

from frazil.errors import Conflict
from frazil.events import first_position, sequence_of
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import (
    BATCH,
    IDENTITY,
    PREVIOUS_WATERMARK,
    STREAM,
    WATERMARK,
    WATERMARK_SEQUENCE,
    LakeTable,
)

REPAIR = "frazil.repair"
LOST = "frazil.lost-ranges"


def repair_id(table: LakeTable) -> str:
    """Changes with each repair: what is derived from the stream is then built again."""
    return table.properties.get(REPAIR, "")


def lost_ranges(table: LakeTable) -> list[tuple[int, int]]:
    """Positions of this stream, first and last, that a person gave up: below the watermark, and not in the table."""
    return msgspec.json.decode(table.properties.get(LOST, "[]"), type=list[tuple[int, int]])


def skip_lost_range(lake: Lake, base: LakeTable, *, watermark: int, stream: str, identity: str) -> LakeTable:
    """Go on from `watermark`, fed from this stream, by an empty snapshot that says so. What lies between is lost.

    Goes through only if the table is still as it was at `base`: a commit of events, or another repair, that came
    between moves the main branch and makes this a `Conflict`.
    """
    if watermark < base.watermark:
        raise Conflict(f"{base.name} is at {base.watermark} already", code="watermark_not_ahead")
    empty = base.spec.row_schema().empty_table()
    repair = f"repair-{uuid.uuid4().hex[:12]}"
    marks = {WATERMARK: str(watermark), PREVIOUS_WATERMARK: str(base.watermark), BATCH: repair}
    # The ranges are of one stream: the positions of a new one have another identity beside them in every token.
    lost: list[tuple[int, int]] = []
    if identity == base.stream_identity:
        lost = [*lost_ranges(base), (base.watermark, watermark - 1)]
    with translated(f"repair {base.name}"):
        try:
            # A transaction changes the object that it is opened on, and `base` is a value that others hold.
            with lake.catalog.load_table(base.name).transaction() as transaction:
                if transaction.table_metadata != base.iceberg.metadata:
                    raise CommitFailedException("it was changed before")
                transaction.append(empty, snapshot_properties=marks)
                marked = transaction.table_metadata.current_snapshot()
                transaction.set_properties(
                    {
                        STREAM: stream,
                        IDENTITY: identity,
                        REPAIR: repair,
                        LOST: msgspec.json.encode(lost).decode(),
                        WATERMARK: str(watermark),
                        WATERMARK_SEQUENCE: str(marked.sequence_number or 0) if marked else "0",
                    }
                )
        except CommitFailedException as error:
            raise Conflict(f"{base.name} was changed meanwhile", code="table_moved", hint="try again") from error
    return lake.table(base.name)


def restate_watermark(lake: Lake, name: str) -> tuple[LakeTable, int]:
    """Set the stated watermark to what the table's own data says, and return both.

    The data is the newest marked snapshot below the current one; where maintenance has expired all marks, it is the
    message of the last row: events come in by whole messages and in order, so that all before it is there.
    """
    table = lake.table(name)
    watermark = table.marked_watermark()
    if watermark is None:
        last = -1
        for rows in table.scan(["_seq"]):
            last = max(last, int(rows.column("_seq").to_numpy().max(initial=-1)))
        watermark = first_position(sequence_of(last) + 1) if last >= 0 else first_position(1)
    current = table.iceberg.metadata.current_snapshot()
    sequence_number = (current.sequence_number or 0) if current else 0
    repair = f"repair-{uuid.uuid4().hex[:12]}"
    repaired = lake.set_properties(
        name, {WATERMARK: str(watermark), WATERMARK_SEQUENCE: str(sequence_number), REPAIR: repair}
    )
    return repaired, watermark
