"""Dead letters: the events of a table that could not be committed, each with its position and the reason.

They are written before the commit that moves the watermark over them, and only while the table is still at the
watermark that they were found at. Whoever takes up the range after a kill finds them by position, leaves their rows
out, and does not write them again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.events import conform
from frazil.events.declaration import TableSpec, dead_letters_of, entity_of, parse_table
from frazil.lake.bulk.data_files import FileWriter, WrittenFile, plan_files
from frazil.lake.bulk.load_commit import Load, Replaces, publish_load
from frazil.lake.catalog.entity import find_table
from frazil.lake.catalog.lake import Lake
from frazil.lake.catalog.table import LakeTable

_TRIES = 5
_COLUMNS: Mapping[str, Any] = {
    "position": {"type": "long", "description": "the _seq that the row would have had"},
    "stream": {"type": "string", "description": "identity of the stream that the position is in"},
    "id": "string",
    "op": "string",
    "ts": "timestamp",
    "received_at": "timestamp",
    "actor": "string",
    "source": "string",
    "workspace": "string",
    "data": {"type": "string", "description": "as JSON that can be published again"},
    "code": {"type": "string", "description": "of the error"},
    "reason": {"type": "string", "description": "why it could not be committed"},
    "failed_at": "timestamp",
}


@dataclass(frozen=True)
class DeadLetter:
    """An event that could not be committed."""

    position: int
    id: str
    op: str
    ts: datetime
    received_at: datetime
    actor: str | None
    source: str | None
    workspace: str | None
    data: str
    code: str
    reason: str
    failed_at: datetime


def dead_letters_spec(spec: TableSpec) -> TableSpec:
    """The table for the dead letters of this one."""
    return parse_table(
        {
            "name": dead_letters_of(spec.name),
            "kind": "bulk",
            "columns": _COLUMNS,
            "description": f"Events of {entity_of(spec.short_name)} that could not be committed.",
            "owner": spec.owner,
        }
    )


def dead_letters_table(lake: Lake, name: str) -> LakeTable | None:
    """The dead letters of the table `name`; None before the first."""
    return find_table(lake, dead_letters_of(name))


def dead_positions(letters: LakeTable | None, stream: str, *, at_least: int = 0) -> set[int]:
    """The positions of this stream that have a dead letter, from `at_least` on."""
    if letters is None:
        return set()
    found: set[int] = set()
    for batch in letters.scan(["position", "stream"]):
        positions, streams = batch.column("position").to_pylist(), batch.column("stream").to_pylist()
        found |= {at for at, of in zip(positions, streams, strict=True) if of == stream and at >= at_least}
    return found


def read_dead_letters(lake: Lake, name: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The dead letters of a table in the order of their positions: all, or so many of the first."""
    table = dead_letters_table(lake, name)
    if table is None:
        return []
    where = None
    if limit is not None and limit < table.rows:
        # A letter holds a whole event: those that are not wanted are not read.
        positions = sorted(at for batch in table.scan(["position"]) for at in batch.column("position").to_pylist())
        where = f"position <= {positions[limit - 1]}"
    rows = [row for batch in table.scan(where=where) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["position"])[:limit]


def add_dead_letters(lake: Lake, fed: LakeTable, letters: Sequence[DeadLetter]) -> int:
    """Write those that are not written yet, in one commit; how many. `Unavailable` if the table has moved on from
    `fed`, or another has written some of them meanwhile."""
    table = lake.create_bulk(dead_letters_spec(fed.spec))
    known = dead_positions(table, fed.stream_identity, at_least=fed.watermark)
    new = [letter for letter in letters if letter.position not in known]
    if not new:
        return 0
    rows = [{**asdict(letter), "stream": fed.stream_identity} for letter in new]
    files = _written(lake, table, rows)
    identity = " ".join((fed.stream_identity, *(str(letter.position) for letter in new)))
    load = Load(f"dead-{blake2b(identity.encode(), digest_size=12).hexdigest()}", len(new))
    crash_point("before_dead_letters_publish")
    publish_load(lake, table.name, load, files, check=_not_moved(lake, fed, {letter.position for letter in new}))
    crash_point("after_dead_letters_publish")
    return len(new)


def _not_moved(lake: Lake, fed: LakeTable, positions: set[int]) -> Callable[[LakeTable], None]:
    def check(current: LakeTable) -> None:
        is_next = lake.table(fed.name).watermark == fed.watermark
        if not is_next or positions & dead_positions(current, fed.stream_identity, at_least=fed.watermark):
            raise Unavailable(
                f"another committer is at work on {fed.name}", code="superseded", hint="it is tried again"
            )

    return check


def remove_dead_letters(lake: Lake, name: str, chosen: Iterable[tuple[str, int]]) -> int:
    """Take out the letters of these streams and positions, in one commit; how many there were."""
    gone = set(chosen)
    for _ in range(_TRIES):
        table = dead_letters_table(lake, name)
        if table is None:
            return 0
        rows = [row for batch in table.scan() for row in batch.to_pylist()]
        remaining = [row for row in rows if (row["stream"], row["position"]) not in gone]
        if len(remaining) == len(rows):
            return 0
        files = _written(lake, table, remaining) if remaining else []
        load = Load(f"resent-{uuid.uuid4().hex}", len(remaining), Replaces.ALL)
        crash_point("before_dead_letters_removal")
        try:
            publish_load(lake, table.name, load, files, check=_still(table))
        except _Moved:
            continue
        crash_point("after_dead_letters_removal")
        return len(rows) - len(remaining)
    raise Unavailable(f"the dead letters of {name} change at every try", code="busy", hint="try again")


class _Moved(Unavailable):
    """The letters are not the ones that were read."""


def _still(table: LakeTable) -> Callable[[LakeTable], None]:
    def check(current: LakeTable) -> None:
        if current.snapshot_id != table.snapshot_id:
            raise _Moved(f"{table.name} has changed", code="busy")

    return check


def _written(lake: Lake, table: LakeTable, rows: Sequence[Mapping[str, Any]]) -> list[WrittenFile]:
    schema = table.spec.row_schema()
    with FileWriter(plan_files(lake, table)) as writer:
        columns = {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}
        writer.write(conform(pa.table(columns), schema))
    return writer.written
