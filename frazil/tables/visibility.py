"""Visibility: whether a table has come to a mark, the place in a stream that a token names, and the wait for it."""

from __future__ import annotations

import asyncio

from frazil.errors import Conflict, FrazilError
from frazil.events import Mark
from frazil.lake.catalog import LakeTable
from frazil.lake.recovery import lost_ranges
from frazil.tables.directory import TableDirectory
from frazil.tables.stream import TableStream

_HEAD_SECONDS = 2.0


def check_mark(table: LakeTable, mark: Mark) -> None:
    """Refuse a mark that will never be reached."""
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
            hint="send them again with the same ids; GET /v1/journal?kind=bus_repaired has the time",
        )


async def check_reached(stream: TableStream, table: LakeTable, mark: Mark) -> None:
    """Refuse a mark beyond the head of the stream: it is of no receipt, and the wait for it would never end.

    The bus is asked only where neither the table nor this gateway has come so far, as for a token of another gateway.
    If it does not answer, nothing is refused, and the caller may wait.
    """
    if table.watermark > mark.position or table.stream_identity != mark.stream:
        return
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            if await stream.has_come_to(mark.position):
                return
    except (FrazilError, TimeoutError):
        return
    raise Conflict(
        f"the token names a place that the stream of {table.token_name.removeprefix('main.')!r} has not come to",
        code="token_beyond_head",
        hint="pass the `token` of a receipt or of an answer, unchanged; if the bus was put back to an older state, "
        "send the events again with the same ids",
    )


async def until_committed(
    directory: TableDirectory, name: str, mark: Mark, *, timeout_seconds: float
) -> tuple[LakeTable, bool]:
    """Wait until the table is committed up to this mark; the table, and whether it is."""

    def reached(table: LakeTable) -> bool:
        check_mark(table, mark)
        return table.watermark > mark.position

    return await directory.until(name, reached, timeout_seconds=timeout_seconds)
