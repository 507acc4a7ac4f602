"""Waiting for a mark: the place in a stream that a token names."""

from __future__ import annotations

from frazil.errors import Conflict
from frazil.events import Mark
from frazil.gateway.ingest.directory import TableDirectory
from frazil.lake import LakeTable
from frazil.lake.mend import lost_ranges


def check_mark(table: LakeTable, mark: Mark) -> None:
    """Refuse a mark that no waiting will reach."""
    short = table.spec.short_name
    if table.stream_identity != mark.stream:
        raise Conflict(
            f"the token is of another stream than the one that feeds {short!r} now",
            code="token_of_another_stream",
            hint="the bus or the table was replaced since; send the events again with the same ids",
        )
    if any(first <= mark.position <= last for first, last in lost_ranges(table)):
        raise Conflict(
            f"the events of this token were lost with the bus of {short!r}",
            code="events_lost",
            hint="send them again with the same ids; GET /v1/journal?kind=bus_repaired tells when it happened",
        )


async def until_committed(
    directory: TableDirectory, name: str, mark: Mark, *, timeout_seconds: float
) -> tuple[LakeTable, bool]:
    """Wait until the table is committed up to this mark; the table, and whether it is."""

    def reached(table: LakeTable) -> bool:
        check_mark(table, mark)
        return table.watermark > mark.position

    return await directory.until(name, reached, timeout_seconds=timeout_seconds)
