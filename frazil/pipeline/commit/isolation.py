"""Isolation: which rows of a batch cannot be staged, found by halving it.

A row is believed to be the cause only if a control row of the same table can be staged before and after, so that the
engine, the catalog and the store are known to work, and if it fails once more at the end.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.events.declaration import TableSpec
from frazil.events.decoding import raw_data
from frazil.lake.derived import DeadLetter
from frazil.pipeline.commit.row_errors import RowsRefused

MAX_ATTEMPTS = 256
"""A stage takes 0.1 to 0.3 s: a table is busy with one batch for a minute at most. What is still in parts of several
rows by then is refused as it is; a part of good rows among it commits when it is sent again."""
_REASON_CHARACTERS = 1000
_FOLDERS = re.compile(r"\S*/(?=\S)")
"""Readers of dead letters do not see where files are."""

Attempt = Callable[[pa.Table], Awaitable[RowsRefused | None]]
"""Stage these rows for nobody: None, or why they cannot be. Raises for trouble that is not theirs."""


@dataclass(frozen=True)
class RefusedEvent:
    """Rows that cannot be staged: one, or a part that was not halved any further."""

    rows: pa.Table
    error: RowsRefused

    def letters(self, spec: TableSpec, failed_at: datetime) -> list[DeadLetter]:
        code, reason = self.error.code, _FOLDERS.sub("", self.error.message)[:_REASON_CHARACTERS]
        return [
            DeadLetter(
                position=row["_seq"],
                id=row["_id"],
                op=row["_op"],
                ts=row["_ts"],
                received_at=row["_received_at"],
                actor=row["_actor"],
                source=row["_source"],
                workspace=row["_workspace"],
                data=raw_data(row, spec),
                code=code,
                reason=reason,
                failed_at=failed_at,
            )
            for row in self.rows.to_pylist()
        ]


async def isolate(
    rows: pa.Table, attempt: Attempt, control: pa.Table, *, max_attempts: int = MAX_ATTEMPTS
) -> list[RefusedEvent] | None:
    """The rows that are refused; None if all of them together were not refused any more.

    An empty list says that every half can be staged and the whole cannot: it is too large.
    """
    await _check_control(attempt, control)
    if (error := await attempt(rows)) is None:
        return None
    found = await _halved(RefusedEvent(rows, error), attempt, max_attempts)
    await _check_control(attempt, control)
    refused = [part for part in found if await attempt(part.rows) is not None]
    crash_point("after_isolation")
    return refused


async def _halved(whole: RefusedEvent, attempt: Attempt, max_attempts: int) -> list[RefusedEvent]:
    # Level by level, so that what is left when the attempts are used up is in small parts everywhere.
    waiting = deque([whole])
    found: list[RefusedEvent] = []
    attempts = 0
    while waiting:
        part = waiting.popleft()
        count = part.rows.num_rows
        if count == 1 or (attempts >= max_attempts and part is not whole):
            found.append(part)
            continue
        for piece in (part.rows.slice(0, count // 2), part.rows.slice(count // 2)):
            attempts += 1
            if (error := await attempt(piece)) is not None:
                waiting.append(RefusedEvent(piece, error))
    return found


async def _check_control(attempt: Attempt, control: pa.Table) -> None:
    if (error := await attempt(control)) is not None:
        raise Unavailable(
            f"not even a row without values can be staged: {error.message}",
            code="stage_failed",
            hint="it is tried again; if it stays, check the warehouse, the catalog's database and the pipeline's log",
        ) from error


def control_row(spec: TableSpec) -> pa.Table:
    """A row that any table of this shape can stage: the system's columns, and no value in the others."""
    now = datetime.now(UTC)
    known = {"_seq": 0, "_id": "control", "_op": "control", "_ts": now, "_received_at": now}
    schema = spec.row_schema()
    return pa.table([pa.array([known.get(field.name)], field.type) for field in schema], schema=schema)
